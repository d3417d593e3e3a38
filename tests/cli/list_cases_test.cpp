// `list cases` of many cases.

#include <sys/resource.h>

#include <ctime>

#include "catch.h"
#include "support/run_command.h"
#include "support/scan_problem.h"
#include "support/temporary_folder.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// Of the CPU, by processes that have ended.
double seconds_of_children() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Of the CPU, to collect the axes of a problem in a map, so many times: a measure of the machine and build.
double seconds_of_maps(std::size_t count) {
  const Problem problem = scan_problem();
  const std::clock_t start = std::clock();
  std::size_t axes = 0;
  for (std::size_t i = 0; i < count; ++i) axes += problem.axes().size();
  REQUIRE(axes > count);
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

}  // namespace

TEST_CASE("listing a case takes the time of a few maps of its axes") {
  constexpr std::size_t kCases = 50'000;
  constexpr double kMost = 16;
  const TemporaryFolder folder;
  const auto config = folder.write("many.json", R"({"format": "ssmbench-config/1", "sweeps": [
      {"op": "selective_scan_fwd", "axes": {"batch": [1, 2], "dim": {"from": 1, "to": 50, "step": 1},
       "dstate": 4, "dtype": "f32", "seqlen": {"from": 1, "to": 500, "step": 1}}}]})");
  const std::string list = "OMP_NUM_THREADS=1 '" SSMBENCH_EXECUTABLE "' list cases '" + config.string() +
                           "' | grep -c '^selective_scan_fwd'";
  double ratio = kMost + 1;  // 9 to 11; 26 to 30 where each problem has a map of its axes
  for (int attempt = 0; attempt < 3 && ratio > kMost; ++attempt) {  // other processes disturb
    const double before = seconds_of_children();
    CHECK(run_shell(list, folder.path().string()).out == std::to_string(kCases) + "\n");
    ratio = (seconds_of_children() - before) / seconds_of_maps(kCases);
  }
  CHECK(ratio <= kMost);
}
