// The command line of `report`; html/page_test.py looks at the pages.

#include "catch.h"
#include "support/run_command.h"
#include "support/temporary_folder.h"

using namespace ssmbench::test;

namespace {

const std::string kRun =
    R"({"record":"run","schema":"ssmbench-results/1","argv":[],"started":"","build":{},"devices":{}})"
    "\n";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("what a run measured is in the report, which loads and overwrites nothing") {
  const TemporaryFolder folder;
  const std::string results = folder / "r.jsonl";
  CHECK(
      run_ssmbench("run configs/small.json --device cpu --impl cpu-scalar --quick --quiet --json " + results)
          .exit_code == 0);
  const auto result = run_ssmbench("report " + results + " -o -");
  CHECK(result.exit_code == 0);
  CHECK(result.err == "");
  CHECK(has(result.out, R"("impl":"cpu-scalar")"));
  CHECK(has(result.out, R"("over_time":[)"));
  CHECK(has(result.out, R"("timing":{"hot":[)"));
  CHECK(has(result.out, "Content-Security-Policy"));
  CHECK(has(result.out, "Chart.js"));
  CHECK_FALSE(has(result.out, "src=\"http"));

  folder.write("page.html", "mine");
  CHECK(run_ssmbench("report " + results + " -o " + (folder / "page.html")).exit_code == 2);
  CHECK(read_file(folder / "page.html") == "mine");
}

TEST_CASE("markup and bytes that are no UTF-8 stay text in the report") {
  const TemporaryFolder folder;
  std::string text =
      run_ssmbench("run configs/small.json --device cpu --impl cpu-scalar --quick --json -").out;
  const std::string plain = R"("reason":"")";
  const std::string hostile = R"("reason":"</script><script>alert(1)</script><img src=x> )";
  REQUIRE(has(text, plain));
  text.replace(text.find(plain), plain.size(), hostile + "&<!--\"");
  const auto result = run_ssmbench("report '" + folder.write("r\xFF<b>.jsonl", text).string() + "' -o -");
  CHECK(result.exit_code == 0);
  CHECK(has(result.out, "alert(1)"));
  CHECK_FALSE(has(result.out, "<script>alert"));
  CHECK_FALSE(has(result.out, "<img src=x>"));
  CHECK_FALSE(has(result.out, "\xFF"));
  CHECK_FALSE(has(result.out, "r\xFF<b>"));
  CHECK_FALSE(has(result.out, "<b>.jsonl"));
}

TEST_CASE("what cannot be reported is said in one line, and no page is left") {
  const TemporaryFolder folder;
  const std::string page = folder / "page.html";
  const auto report = [&](const std::string& file) { return run_ssmbench("report " + file + " -o " + page); };
  CHECK(report(folder / "nothing").exit_code == 2);
  CHECK(report(folder.write("damaged", kRun + "{\"record\":\"ca\n").string()).exit_code == 2);
  const auto empty = report(folder.write("empty", kRun).string());
  CHECK(empty.exit_code == 5);
  CHECK(empty.err == "ssmbench: no results in " + (folder / "empty") + "\n");
  CHECK_FALSE(std::filesystem::exists(page));
}
