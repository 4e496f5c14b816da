#include "harness/report/table.hpp"

#include <gtest/gtest.h>

namespace canzona::harness {
namespace {

const Table kTable{{{"model", ""}, {"a × b", "computed"}}, {{"one, two", "1.5"}, {"say \"x\"", "10"}}};

TEST(Table, AsTextAlignsByCharacterAndShowsTheKind) {
  EXPECT_EQ(to_text(kTable),
            "model        a × b\n"
            "          computed\n"
            "one, two       1.5\n"
            "say \"x\"         10\n");
}

TEST(Table, WithoutConstantNamesKeepsFiguresAndNamesThatVary) {
  const Table table{{{"model", ""}, {"mesh", ""}, {"figure", "computed"}}, {{"a", "m", "1"}, {"b", "m", "1"}}};
  const Table shorter = without_constant_names(table);
  EXPECT_EQ(shorter.columns.size(), 2u);
  EXPECT_EQ(constant_names(table), "mesh m");
  EXPECT_EQ(shorter.rows, (std::vector<std::vector<std::string>>{{"a", "1"}, {"b", "1"}}));
}

TEST(Table, AsMarkdownMarksTheKind) {
  EXPECT_EQ(to_markdown(kTable),
            "| model | a × b *computed* |\n"
            "| --- | ---: |\n"
            "| one, two | 1.5 |\n"
            "| say \"x\" | 10 |\n");
}

TEST(Table, AsCsvQuotesWhatNeedsIt) {
  EXPECT_EQ(to_csv(kTable),
            "model,a × b [computed]\n"
            "\"one, two\",1.5\n"
            "\"say \"\"x\"\"\",10\n");
}

}  // namespace
}  // namespace canzona::harness
