// Runs that mpirun starts. Skipped where there is no mpirun, or the program is built without MPI.

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>

#include "catch.h"
#include "launch/launcher.h"
#include "launch/ranks.h"
#include "support/faulty_run.h"

using namespace ssmbench::test;
using Json = nlohmann::json;

namespace {

const std::string kMpirun =
    "mpirun --allow-run-as-root --oversubscribe --bind-to none --mca btl self,vader -n ";

bool mpi_or_skip() {
  const bool is_here = run_shell("command -v mpirun", "/").exit_code == 0;
  const bool is_built_in = run_ssmbench("--version").out.find("MPI: no") == std::string::npos;
  if (!is_here) std::cout << "skipped: no mpirun\n";
  if (is_here && !is_built_in) std::cout << "skipped: built without MPI\n";
  return is_here && is_built_in;
}

std::string faulty(const std::string& arguments) {
  return "'" SSMBENCH_FAULTY_EXECUTABLE "' run --device cpu " + arguments;
}

}  // namespace

TEST_CASE("two ranks work at the same time, and rank 0 alone writes") {
  if (!mpi_or_skip()) return;
  const TemporaryFolder folder;
  const std::string run =
      faulty(config(folder, "5, 6") + " --no-timing --impl cpu-meets,cpu-scalar --json - --quiet");
  const CommandResult result =
      run_shell("mkdir meeting; SSMBENCH_MEETING=$PWD/meeting " + kMpirun + "2 " + run, folder.path());
  CHECK(result.exit_code == 0);
  CHECK(outcomes(result.out) == Outcomes{{"cpu-meets 5", "pass"},
                                         {"cpu-meets 6", "pass"},
                                         {"cpu-scalar 5", "pass"},
                                         {"cpu-scalar 6", "pass"}});
  const auto records = records_of(result.out);
  CHECK(records.size() == 4 + 2);
  CHECK(records.front().at("slots") == Json{"cpu:0", "cpu:1"});
  std::set<std::string> slots;
  for (const auto& record : records)
    if (record.at("record") == "case") slots.insert(record.at("slot").get<std::string>());
  CHECK(slots == std::set<std::string>{"cpu:0", "cpu:1"});
  // Keys are of what was run, not of how many ran it.
  const auto keys = [](const std::string& text) {
    std::set<std::string> all;
    for (const auto& record : records_of(text))
      if (record.at("record") == "case") all.insert(record.at("key").get<std::string>());
    return all;
  };
  const CommandResult alone =
      run_shell("mkdir two; touch two/a two/b; SSMBENCH_MEETING=$PWD/two " + run, folder.path());
  CHECK(alone.exit_code == 0);
  CHECK(keys(alone.out) == keys(result.out));
}

TEST_CASE("workers of ranks that crash or hang cost their case, and what is timed is alone") {
  if (!mpi_or_skip()) return;
  const TemporaryFolder folder;
  const CommandResult result = run_shell(
      for_cpu_alone(folder) + kMpirun + "2 " +
          faulty(config(folder, "5, 6") + " --runs 5 --timeout 3 --json - --quiet --impl "
                                          "cpu-alone,cpu-exit,cpu-fickle,cpu-hang,cpu-scalar,cpu-throw"),
      folder.path());
  CHECK(result.exit_code == 4);
  const auto found = outcomes(result.out);
  CHECK(found.size() == 12);
  for (const char* length : {" 5", " 6"}) {
    const auto of = [&](const std::string& name) { return found.at(name + length); };
    CHECK(of("cpu-alone") == "pass");
    CHECK(of("cpu-exit") == "error (crash): exited with status 3");
    CHECK(of("cpu-hang") == "error (timeout): timed out after 3 s");
    CHECK(of("cpu-throw") == "error (exception): thrown");
    CHECK(of("cpu-scalar") == "pass");
  }
  CHECK(found.at("cpu-fickle 6") == "error (crash): segmentation fault");
}

TEST_CASE("each rank of MPI is a slot, whose worker has teams of its own") {
  if (!mpi_or_skip()) return;
  const TemporaryFolder folder;
  const CommandResult result = run_shell(
      kMpirun + "2 '" SSMBENCH_FAULTY_EXECUTABLE "' run --device 'cpu*2' " + config(folder, "50, 60") +
          " --runs 5 --json - --quiet --impl cpu-rank-killed,cpu-rank-throw,cpu-scan",
      folder.path());
  CHECK(result.exit_code == 4);
  const auto found = outcomes(result.out);
  CHECK(found.size() == 6);
  for (const char* length : {" 50", " 60"}) {
    CHECK(found.at(std::string("cpu-scan") + length) == "pass");
    CHECK(found.at(std::string("cpu-rank-killed") + length) == "error (crash): rank 1: killed");
    CHECK(found.at(std::string("cpu-rank-throw") + length) == "error (exception): rank 1: thrown");
  }
  for (const auto& record : records_of(result.out))
    if (record.at("record") == "case" && record.at("status") == "pass") {
      CHECK(record.at("device") == "cpu*2");
      CHECK(record.at("beside") == 0);
    }
}

TEST_CASE("a rank that is killed ends the run, workers too, and --resume does the rest") {
  if (!mpi_or_skip()) return;
  const TemporaryFolder folder;
  const std::string file = folder / "results.jsonl";
  const std::string run =
      config(folder, lengths(5, 28)) + " --no-timing --impl cpu-scalar,cpu-slow --quiet --json " + file;
  // The relay is the child of mpirun that is not writing the file.
  const CommandResult killed =
      run_shell(kMpirun + "2 " + faulty(run) + " & mpi=$!; until [ $(cat " + file +
                    " 2>/dev/null | wc -l) -ge 6 ]; do sleep 0.01; done; ranks=$(cat "
                    "/proc/$mpi/task/*/children); for rank in "
                    "$ranks; do cat /proc/$rank/task/$rank/children; ls -l /proc/$rank/fd | grep -q " +
                    file + " || kill -9 $rank; done; wait $mpi",
                folder.path());
  CHECK(killed.exit_code != 0);
  std::istringstream workers(killed.out);
  int count = 0;
  for (std::string worker; workers >> worker; ++count) {
    for (int i = 0; i < 500 && std::filesystem::exists("/proc/" + worker); ++i) run_shell("sleep 0.01", "/");
    CHECK_FALSE(std::filesystem::exists("/proc/" + worker));
  }
  CHECK(count >= 1);
  const std::string before = read_file(file);
  const auto finished = outcomes(before.substr(0, before.rfind('\n') + 1)).size();
  REQUIRE(finished >= 5);
  REQUIRE(finished < 48);
  CHECK(run_shell(kMpirun + "2 " + faulty(run + " --resume"), folder.path()).exit_code == 0);
  CHECK(records_of(read_file(file)).back().at("kept") == finished);
  CHECK(outcomes(read_file(file)).size() == 48);
}

TEST_CASE("a rank of another build ends the run before it has begun") {
  if (!mpi_or_skip()) return;
  const TemporaryFolder folder;
  const std::string run =
      " run --device cpu " + config(folder, "5") + " --no-timing --json r --impl cpu-scalar";
  const CommandResult result = run_shell(
      kMpirun + "1 '" SSMBENCH_FAULTY_EXECUTABLE "'" + run + " : -n 1 '" SSMBENCH_EXECUTABLE "'" + run,
      folder.path());
  CHECK(result.exit_code == 2);
  CHECK(result.err.find("ssmbench: rank 1 on ") != std::string::npos);
  CHECK(result.err.find(" runs another ssmbench (build ") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.path() / "r"));
}

TEST_CASE("an error of the leader, or options for one process, end all ranks with one line and its code") {
  if (!mpi_or_skip()) return;
  const TemporaryFolder folder;
  const auto run = [&](const std::string& options) {
    return run_shell(
        kMpirun + "2 " + faulty(config(folder, "5") + " --no-timing --impl cpu-scalar " + options),
        folder.path());
  };
  const auto lines = [](const std::string& err) {  // mpirun has more to say
    std::size_t count = 0;
    for (std::size_t at = err.find("ssmbench: "); at != std::string::npos;
         at = err.find("ssmbench: ", at + 1))
      ++count;
    return count;
  };
  const CommandResult refused = run("--cpus 2 --json r");
  CHECK(refused.exit_code == 2);
  CHECK(lines(refused.err) == 1);
  const CommandResult full = run("--quiet --json /dev/full");
  CHECK(full.exit_code == 4);
  CHECK(lines(full.err) == 1);
}

TEST_CASE("what the next test starts: ranks that send rank 0 something long, and leave", "[.rank]") {
  if (ssmbench::mpi_version().empty()) return;  // nor has the next test ranks then
  const auto ranks = ssmbench::join_ranks();
  if (ranks->rank() > 0) ranks->send(0, std::string(std::size_t{1} << 20, 'x'));
}

TEST_CASE("ranks leave though the leader has not taken what they sent, as when it cannot write") {
  if (!mpi_or_skip()) return;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  CHECK(run_shell("timeout -k 1 20 " + kMpirun + "3 '" + self + "' '[.rank]'", "/").exit_code == 0);
}

TEST_CASE("a program without MPI refuses to be one of several, before they write the same files") {
  if (run_ssmbench("--version").out.find("MPI: no") == std::string::npos) return;
  const CommandResult result =
      run_shell("OMPI_COMM_WORLD_SIZE=2 '" SSMBENCH_EXECUTABLE "' run configs/small.json --json /dev/null",
                SSMBENCH_SOURCE_DIR);
  CHECK(result.exit_code == 2);
  CHECK(result.err.find("built without MPI") != std::string::npos);
}
