// Runs the command as a person would, and keeps what it printed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/cli/command.hpp"
#include "tests/support.hpp"

namespace canzona::harness {

namespace fs = std::filesystem;
using nlohmann::json;

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

inline Outcome canzona(const std::vector<std::string>& arguments) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_command(arguments);
  std::string out = ::testing::internal::GetCapturedStdout();
  return {code, std::move(out), ::testing::internal::GetCapturedStderr()};
}

/// Bad input: exit code 2, one line on standard error that holds every `part`, nothing on standard output.
inline void expect_refused(const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
  const Outcome outcome = canzona(arguments);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  for (const std::string& part : parts)
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err << " lacks " << part;
}

class Folder : public ::testing::Test {
 protected:
  Folder() : path(testing_support::own_path("")) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() override { fs::remove_all(path); }
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(path / name) << text;
    return (path / name).string();
  }
  fs::path path;
};

}  // namespace canzona::harness
