#include "harness/cli/launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>

#include "harness/cli/command.hpp"
#include "optimized/engine/processes.hpp"
#include "optimized/engine/threads.hpp"
#include "optimized/host/blas.hpp"
#include "reference/core/error.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

constexpr const char* kComplaint = "complaint";

/// FNV-1a of the program that runs.
std::string hash_of_binary() {
  std::ifstream program("/proc/self/exe", std::ios::binary);
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (auto byte = std::istreambuf_iterator<char>(program); byte != std::istreambuf_iterator<char>(); ++byte)
    hash = (hash ^ static_cast<unsigned char>(*byte)) * 0x100000001b3ULL;
  return fmt::format("{:016x}", hash);
}

/// Instead of an identity, on a rank whose command line is not allowed.
ordered_json complaint_of(const std::string& message) { return {{kComplaint, message}}; }

/// What keeps the ranks from starting, in words; empty when all are the same and nobody complains.
std::string difference_between(const std::vector<std::string>& identities) {
  std::vector<ordered_json> ranks;
  for (const std::string& text : identities) ranks.push_back(ordered_json::parse(text));
  const bool same = std::all_of(ranks.begin(), ranks.end(), [&](const auto& rank) { return rank == ranks.front(); });
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].contains(kComplaint)) continue;
    const auto message = ranks[rank][kComplaint].get<std::string>();
    return same ? message : fmt::format("rank {}: {}", rank, message);
  }
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    for (const auto& [key, value] : ranks.front().items()) {
      if (ranks[rank][key] == value) continue;
      return fmt::format("rank {} differs from rank 0: its {} is {}, rank 0 has {}", rank, key, ranks[rank][key].dump(),
                         value.dump());
    }
  }
  return {};
}

double deadline_of(const LaunchArguments& arguments) {
  return parse_number("--deadline", arguments.deadline, 0.1, 1e6);
}

/// Not for a launch that is refused: its complaint is one line.
void advise() {
  if (const std::string advice = optimized::blas_advice(); !advice.empty()) fmt::print(stderr, "canzona: {}\n", advice);
}

int launch_threads(const LaunchArguments& arguments, const std::function<Launch(int, bool)>& prepare,
                   const optimized::RankBody& body, const std::function<int()>& finish) {
  if (optimized::is_one_of_several_processes())
    throw InputError("", "--ranks", "'" + arguments.ranks + "'", "not under mpirun or srun, which start the ranks");
  constexpr std::int64_t kMostThreads = 1024;
  const auto ranks = static_cast<int>(positive("--ranks", arguments.ranks, kMostThreads));
  const double deadline = deadline_of(arguments);
  const optimized::ChosenBackend backend = backend_of(arguments);
  const Launch own = prepare(ranks, true);
  advise();
  try {
    optimized::run_on_threads(own.mesh, deadline, backend, body);
  } catch (const Error& error) {
    fmt::print(stderr, "canzona: {}\n", error.what());
    return kRankFailed;
  }
  return finish();
}

int launch_processes(const LaunchArguments& arguments, const std::function<Launch(int, bool)>& prepare,
                     const optimized::RankBody& body, const std::function<int()>& finish) {
  std::optional<double> deadline;
  std::optional<optimized::ChosenBackend> backend;
  std::optional<Launch> own;
  ordered_json identity;
  const auto attempt = [&](const auto& step) {
    try {
      step();
    } catch (const InputError& error) {
      identity = complaint_of(error.what());
    }
  };
  attempt([&] {
    deadline = deadline_of(arguments);
    backend.emplace(backend_of(arguments));
  });
  optimized::Processes processes(deadline.value_or(60), kRankFailed);
  if (backend) {
    attempt([&] {
      own = prepare(processes.size(), processes.rank() == 0);
      identity = own->identity;
      identity["backend"] = {{"name", backend->backend->name}, {"options", backend->options.values()}};
      identity["binary"] = hash_of_binary();
    });
  }
  if (const std::string difference = difference_between(processes.all_gather(identity.dump())); !difference.empty()) {
    if (processes.rank() == 0) throw InputError(difference);
    return kBadInput;
  }
  if (processes.rank() == 0) advise();
  processes.run(own->mesh, *backend, body);
  return processes.rank() == 0 ? finish() : kSuccess;
}

}  // namespace

void add_launch(CLI::App& command, LaunchArguments& arguments) {
  command.get_option("--dp")->description("data-parallel ranks [all ranks ÷ tp]");
  command.get_option("--tp")->description("tensor-parallel ranks [1]");
  command.add_option("--ranks", arguments.ranks, "run so many ranks as threads of this process")->type_name("N");
  command.add_option("--backend", arguments.backend, "what ranks compute on: host, or cuda where this build has it")
      ->type_name("NAME")
      ->capture_default_str();
  command
      .add_option("--backend-option", arguments.backend_options,
                  "an option of the backend, see 'canzona list'; may be repeated")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command
      .add_option("--deadline", arguments.deadline, "how long a rank waits for another before it names it and gives up")
      ->type_name("SECONDS")
      ->capture_default_str();
  command.add_option("--tokens", arguments.tokens, "of a micro-batch: what forward and backward go over")
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--sequence", arguments.sequence, "tokens in a sequence [4096, or all where there are fewer]")
      ->type_name("N");
}

optimized::Tokens tokens_of(const std::string& tokens, const std::string& sequence) {
  constexpr std::int64_t kMost = 1'000'000;
  constexpr std::int64_t kSequence = 4096;  // as simulated
  const std::int64_t count = positive("--tokens", tokens, kMost);
  const std::int64_t each = sequence.empty() ? std::min(count, kSequence) : positive("--sequence", sequence, kMost);
  if (count % each != 0)
    throw InputError("", "--tokens", std::to_string(count), fmt::format("multiples of --sequence ({})", each));
  return {count, each};
}

reference::Precision precision_of(const std::string& arithmetic, DType gradient) {
  const DType type = parse_dtype(arithmetic, "--precision");
  if (type == DType::fp64) throw InputError("", "--precision", "'fp64'", "fp32, bf16, fp16");
  return reference::make_precision(type, gradient);
}

optimized::ChosenBackend backend_of(const LaunchArguments& arguments) {
  const optimized::Backend& backend = optimized::Backends::instance().find(arguments.backend);
  std::map<std::string, std::string> given;
  add_options("--backend-option", arguments.backend_options, given);
  const Options options(backend.options, given, "backend " + backend.name);
  backend.require();
  return {&backend, options};
}

void settle_mesh(CommonArguments& arguments, int ranks) {
  const std::int64_t tp = arguments.tp.empty() ? 1 : positive("--tp", arguments.tp, kMostRanks);
  if (arguments.dp.empty()) arguments.dp = std::to_string(std::max<std::int64_t>(ranks / tp, 1));
  arguments.tp = std::to_string(tp);
  const std::int64_t dp = positive("--dp", arguments.dp, kMostRanks);
  if (dp * tp != ranks) {
    throw InputError("", "the mesh", fmt::format("dp {} × tp {} = {} ranks", dp, tp, dp * tp),
                     fmt::format("the {} that were started (mpirun -np N, or --ranks N for threads)", ranks));
  }
}

int launch(const LaunchArguments& arguments, const std::function<Launch(int ranks, bool writes)>& prepare,
           const optimized::RankBody& body, const std::function<int()>& finish) {
  return arguments.ranks.empty() ? launch_processes(arguments, prepare, body, finish)
                                 : launch_threads(arguments, prepare, body, finish);
}

}  // namespace canzona::harness
