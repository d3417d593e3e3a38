// Runs of several workers at a time: they find what one finds, what is timed is alone, and faults cost what
// they cost one.

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "catch.h"
#include "support/faulty_run.h"

using namespace ssmbench::test;
using Json = nlohmann::json;

namespace {

std::vector<Json> case_records(const std::string& text) {
  auto records = records_of(text);
  std::erase_if(records, [](const Json& record) { return record.at("record") != "case"; });
  return {records.begin(), records.end()};
}

/// "id impl status key" of each.
std::multiset<std::string> results(const std::string& text) {
  std::multiset<std::string> all;
  for (const auto& record : case_records(text))
    all.insert(record.at("id").get<std::string>() + " " + record.at("impl").get<std::string>() + " " +
               record.at("status").get<std::string>() + " " + record.at("key").get<std::string>());
  return all;
}

/// Starts a run in the background as $run, does `meanwhile`, and exits as the run does.
CommandResult run_in_background(const TemporaryFolder& folder, const std::string& arguments,
                                const std::string& meanwhile) {
  return run_shell("'" SSMBENCH_FAULTY_EXECUTABLE "' run --device cpu " + arguments +
                       " & run=$!; workers() { cat /proc/$run/task/$run/children; }; " + meanwhile +
                       "; wait $run",
                   folder.path());
}

/// Waits until the file has so many lines.
std::string until_lines(const std::string& file, int lines) {
  return "until [ $(cat " + file + " 2>/dev/null | wc -l) -ge " + std::to_string(lines) +
         " ]; do sleep 0.01; done";
}

}  // namespace

TEST_CASE("a sweep in one slot or two has the results of one without slots, and their keys") {
  const auto run = [](const std::string& slots) {
    const CommandResult result = run_ssmbench(
        "run configs/small.json --device cpu --quick --no-timing --impl cpu-scalar --dtype f32 "
        "--json - --quiet " +
        slots);
    CHECK(result.exit_code == 0);
    CHECK(result.err.empty());
    return result.out;
  };
  const std::string without = run("");
  const std::string one = run("--cpus 1");
  const std::string two = run("--cpus 2");
  REQUIRE(results(without).size() > 5);
  CHECK(results(without) == results(one));
  CHECK(results(without) == results(two));
  CHECK(without.find("\"slot") == std::string::npos);
  CHECK(without.find("\"beside\"") == std::string::npos);
  CHECK(records_of(two).front().at("slots") == Json{"cpu:0", "cpu:1"});
  std::set<std::string> slots;
  for (const auto& record : case_records(two)) {
    if (record.at("status") != "skip") slots.insert(record.at("slot").get<std::string>());
    if (record.at("status") != "skip") CHECK(record.at("beside").get<int>() <= 1);
  }
  CHECK(slots == std::set<std::string>{"cpu:0", "cpu:1"});
}

TEST_CASE("two slots work at the same time, and one does not") {
  const TemporaryFolder folder;
  const std::string run = config(folder, "5, 6") + " --no-timing --impl cpu-meets --json - --quiet --cpus ";
  const std::string meeting = folder / "meeting";
  const CommandResult two = run_faulty(run + "2", "mkdir " + meeting + "; SSMBENCH_MEETING=" + meeting);
  CHECK(two.exit_code == 0);
  CHECK(outcomes(two.out) == Outcomes{{"cpu-meets 5", "pass"}, {"cpu-meets 6", "pass"}});
}

TEST_CASE("what is timed on the CPU is launched alone, in as many threads as without slots") {
  const TemporaryFolder folder;
  const std::string run =
      config(folder, "5, 6, 7, 8") + " --impl cpu-alone --runs 10 --json - --quiet --cpus 2";
  const CommandResult timed = run_faulty(run, for_cpu_alone(folder));
  CHECK(timed.exit_code == 0);
  const auto records = case_records(timed.out);
  CHECK(records.size() == 4);
  for (const auto& record : records) {
    CHECK(record.at("status") == "pass");
    CHECK(record.at("beside") == 0);
  }
}

TEST_CASE("in two slots, implementations that crash or hang cost their case, and all others run") {
  const TemporaryFolder folder;
  const std::string run = config(folder, "5, 6") +
                          " --no-timing --timeout 5 --json - --quiet --impl "
                          "cpu-abort,cpu-exit,cpu-fickle,cpu-fork,cpu-hang,cpu-liar,cpu-scalar,cpu-throw";
  const CommandResult result = run_faulty(run + " --cpus 2");
  CHECK(result.exit_code == 4);
  const auto found = outcomes(result.out);
  CHECK(found.size() == 16);
  for (const char* length : {" 5", " 6"}) {
    const auto of = [&](const std::string& name) { return found.at(name + length); };
    CHECK(of("cpu-abort") == "error (crash): aborted");
    CHECK(of("cpu-exit") == "error (crash): exited with status 3");
    CHECK(of("cpu-fork") == "error (crash): exited with status 5");
    CHECK(of("cpu-hang") == "error (timeout): timed out after 5 s");
    CHECK(of("cpu-liar").starts_with("error (protocol): "));
    CHECK(of("cpu-throw") == "error (exception): thrown");
    CHECK(of("cpu-scalar") == "pass");
  }
  CHECK(found.at("cpu-fickle 5") == "pass");
  CHECK(found.at("cpu-fickle 6") == "error (crash): segmentation fault");
}

TEST_CASE("one that hangs while it has the host for itself does not keep others from it for ever") {
  const TemporaryFolder folder;
  // While it hangs, the other slot waits, as long as its own cases may take.
  const CommandResult result = run_faulty(config(folder, "5, 6") +
                                          " --runs 3 --timeout 3 --json - --quiet --cpus 2 --impl "
                                          "cpu-late-hang,cpu-scalar");
  CHECK(result.exit_code == 4);
  const auto found = outcomes(result.out);
  CHECK(found.size() == 4);
  for (const char* length : {" 5", " 6"}) {
    CHECK(found.at(std::string("cpu-late-hang") + length) == "error (timeout): timed out after 3 s");
    CHECK(found.at(std::string("cpu-scalar") + length) == "pass");
  }
}

TEST_CASE("a worker of two that is killed costs its case") {
  const TemporaryFolder folder;
  const std::string file = folder / "results.jsonl";
  const CommandResult result = run_in_background(
      folder, config(folder, "5, 6, 7, 8") + " --runs 10 --cpus 2 --impl cpu-slow --quiet --json " + file,
      until_lines(file, 2) + "; sleep 0.2; kill -9 $(workers | cut -d' ' -f1)");
  const auto found = outcomes(read_file(file));
  CHECK(found.size() == 4);
  const auto killed =
      std::ranges::count_if(found, [](const auto& each) { return each.second == "error (crash): killed"; });
  const auto passed = std::ranges::count_if(found, [](const auto& each) { return each.second == "pass"; });
  CHECK(killed + passed == 4);
  CHECK(killed <= 1);  // none where the worker had nothing to do just then
  CHECK(result.exit_code == (killed == 1 ? 4 : 0));
}

TEST_CASE("a worker of two that is stopped while it waits for the host does not hold up the run for ever") {
  const TemporaryFolder folder;
  const std::string file = folder / "results.jsonl";
  // /proc/locks has who waits behind an arrow.
  const CommandResult result = run_in_background(
      folder,
      config(folder, lengths(5, 12)) +
          " --runs 3 --warmup 1 --reruns 0 --timeout 1 --cpus 2 --impl cpu-slow --quiet --json " + file,
      until_lines(file, 2) +
          "; waits() { for w in $(workers); do grep -qe \"-> .* $w \" /proc/locks && echo $w; done | head -n "
          "1; }; "
          "until w=$(waits) && [ -n \"$w\" ]; do sleep 0.01; done; kill -STOP $w");
  const auto found = outcomes(read_file(file));
  CHECK(found.size() == 8);
  const auto timed_out = std::ranges::count_if(
      found, [](const auto& each) { return each.second.starts_with("error (timeout): "); });
  const auto passed = std::ranges::count_if(found, [](const auto& each) { return each.second == "pass"; });
  CHECK(timed_out + passed == 8);
  CHECK(timed_out <= 1);  // none where it waited between two cases
  CHECK(result.exit_code == (timed_out == 1 ? 4 : 0));
}

TEST_CASE(
    "a leader that is killed takes its workers along, and --resume runs what is missing, with slots or not") {
  const TemporaryFolder folder;
  const std::string file = folder / "results.jsonl";
  const std::string run =
      config(folder, lengths(5, 28)) + " --no-timing --impl cpu-scalar,cpu-slow --quiet --json " + file;
  const CommandResult killed =
      run_in_background(folder, run + " --cpus 2",
                        until_lines(file, 6) +
                            "; workers=$(workers); kill -9 $run; sleep 0.2; for w in $workers; do "
                            "grep -s ^State: /proc/$w/status | grep -v Z && echo alive; done");
  CHECK(killed.out.find("alive") == std::string::npos);
  const std::string before = read_file(file);
  const auto finished = records_of(before.substr(0, before.rfind('\n') + 1)).size() - 1;
  REQUIRE(finished >= 5);
  REQUIRE(finished < 48);  // the others of cpu-slow take over a second
  CHECK(run_faulty(run + " --resume --cpus 2").exit_code == 0);
  CHECK(records_of(read_file(file)).back().at("kept") == finished);
  CHECK(outcomes(read_file(file)).size() == 48);
  CHECK(run_faulty(run + " --resume").exit_code == 0);
  CHECK(records_of(read_file(file)).back().at("kept") == 48);
}

TEST_CASE("SIGTERM and SIGINT end all workers of a run, and its file says so") {
  const TemporaryFolder folder;
  for (const std::string signal : {"INT", "TERM"}) {
    const std::string file = folder / signal;
    const CommandResult result = run_in_background(
        folder, config(folder, "5, 6") + " --impl cpu-hang --cpus 2 --quiet --json " + file,
        until_lines(file, 1) +
            "; until [ $(workers | wc -w) = 2 ]; do sleep 0.01; done; sleep 0.1; workers; kill -" + signal +
            " $run");
    CHECK(result.exit_code == 130);
    std::istringstream workers(result.out);
    int count = 0;
    for (std::string worker; workers >> worker; ++count)
      CHECK_FALSE(std::filesystem::exists("/proc/" + worker));
    CHECK(count == 2);
    CHECK(records_of(read_file(file)).back().at("interrupted") == true);
  }
}

TEST_CASE("with slots too, a full disk is one line, and who stops reading the table does no harm") {
  const TemporaryFolder folder;
  const std::string run = config(folder, "5, 6, 7, 8") + " --no-timing --impl cpu-scalar --cpus 2 ";
  const CommandResult full = run_faulty(run + "--quiet --json /dev/full");
  CHECK(full.exit_code == 4);
  CHECK(full.err == "ssmbench: /dev/full: cannot be written: No space left on device\n");
  const CommandResult head = run_shell("{ '" SSMBENCH_FAULTY_EXECUTABLE "' run --device cpu " + run +
                                           " --json r; echo $? >code; } | head -n 1",
                                       folder.path());
  CHECK(std::ranges::count(head.out, '\n') == 1);
  CHECK(read_file(folder / "code") == "0\n");
  CHECK(records_of(read_file(folder / "r")).back().at("counts") == Json{{"pass", 4}});
}

TEST_CASE("the table of several slots names them, and rows of a case stand together") {
  const TemporaryFolder folder;
  const CommandResult result = run_faulty(
      config(folder, "5, 6, 7, 8") + " --no-timing --impl cpu-scalar,cpu-slow --cpus 2 --json /dev/null");
  CHECK(result.out.find("2 slots: cpu:0, cpu:1\n") != std::string::npos);
  std::vector<std::string> lengths;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);)
    if (const auto shape = line.find("1×"); line.starts_with("pass") && shape != std::string::npos)
      lengths.push_back(line.substr(shape, std::string("1×5×1").size()));
  REQUIRE(lengths.size() == 8);
  for (std::size_t i = 0; i < lengths.size(); i += 2) CHECK(lengths[i] == lengths[i + 1]);
  CHECK(std::set<std::string>(lengths.begin(), lengths.end()).size() == 4);
}

TEST_CASE("slots that cannot be are one line") {
  const TemporaryFolder folder;
  const std::string run = "run configs/small.json --list ";
  const auto refused = [&](const std::string& options, int code) {
    const CommandResult result = run_ssmbench(run + options);
    INFO(options << ": " << result.err);
    CHECK(result.exit_code == code);
    CHECK(std::ranges::count(result.err, '\n') == 1);
  };
  refused("--cpus 2 --gpus 2", 2);
  refused("--cpus 0", 2);
  refused("--cpus 2 --device cuda", 2);
  refused("--cpus 2 --no-supervision", 2);
  refused("--gpus 2 --device cpu", 2);
  refused("--gpus none", 2);
  refused("--gpus 1000", 4);
}
