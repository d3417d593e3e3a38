#include "cli/rank_leader.h"

#include <map>

#include "base/errors.h"
#include "catch.h"
#include "launch/launcher.h"

using namespace ssmbench;

namespace {

/// As they are on hosts with so many GPUs, `gpus` of each in turn; -1: runs on the CPU.
std::vector<RankReport> ranks(const std::vector<std::string>& hosts, int gpus) {
  std::vector<RankReport> all;
  for (const auto& host : hosts) {
    RankReport& r = all.emplace_back();
    r.host = host;
    r.process = 100 + static_cast<int>(all.size());
    r.build = "1a2b";
    r.files = "f";
    r.device = gpus < 0 ? "CPU" : "H200";
    r.plan = "p";
    r.gpus = gpus;
    r.lock = "/lock" + std::to_string(all.size());
    for (const auto& other : all) r.place += &other != &r && other.host == host ? 1 : 0;
    if (r.place < gpus) r.gpu = r.place;
    if (r.gpu >= 0) r.gpu_uuid = host + std::to_string(r.gpu);
  }
  return all;
}

template <class Error>
std::string complaint(const std::vector<RankReport>& reports) {
  try {
    check_ranks(reports);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("reports of ranks arrive as they were sent") {
  RankReport sent = ranks({"a", "b", "b"}, 2)[2];
  sent.error = "no \xff file";
  sent.cpus = {1, 2};
  sent.all_cpus = {1, 2, 3};
  sent.free_bytes = std::size_t{1} << 40;
  const RankReport got = rank_report_in(to_text(sent));
  CHECK(got.host == "b");
  CHECK(got.process == sent.process);
  CHECK(got.error.starts_with("no "));
  CHECK(got.gpu == 1);
  CHECK(got.place == 1);
  CHECK(got.gpu_uuid == "b1");
  CHECK(got.cpus == sent.cpus);
  CHECK(got.all_cpus == sent.all_cpus);
  CHECK(got.free_bytes == sent.free_bytes);
  CHECK(to_text(rank_report_in(to_text(ranks({"a"}, -1)[0]))) == to_text(ranks({"a"}, -1)[0]));
}

TEST_CASE("the report of a rank of another version names its host and its build") {
  auto two = ranks({"a", "b"}, -1);
  two[1] = rank_report_in(R"({"host": "b", "build": "3c4d", "what": "is new"})");
  CHECK(complaint<UsageError>(two).starts_with("rank 1 on b runs another ssmbench (build 3c4d; "));
  two[1] = rank_report_in("nothing that can be read");
  CHECK(complaint<UsageError>(two).find("(build unknown; ") != std::string::npos);
}

TEST_CASE("ranks that differ in what decides results do not run together") {
  const auto three = ranks({"a", "b", "b"}, 2);
  CHECK(complaint<std::runtime_error>(three).empty());
  const auto with = [&](auto change) {
    auto changed = three;
    change(changed[2]);
    return complaint<UsageError>(changed);
  };
  CHECK(with([](RankReport& r) { r.build = "9c8d"; }) ==
        "rank 2 on b runs another ssmbench (build 9c8d; rank 0: 1a2b)");
  CHECK(with([](RankReport& r) { r.error = "x.json: no such file"; }) == "rank 2 on b: x.json: no such file");
  CHECK(with([](RankReport& r) { r.files = "g"; }) ==
        "rank 2 on b reads other configs or plugins than rank 0, under the same names");
  CHECK(with([](RankReport& r) { r.device = "A100"; }) ==
        "rank 2 on b has another device (A100; rank 0: H200)");
  CHECK(with([](RankReport& r) { r.plan = "q"; }) == "rank 2 on b makes another plan than rank 0");
}

TEST_CASE("each rank has a GPU of its own, or the run ends with the host and its counts") {
  CHECK(complaint<DeviceError>(ranks({"a", "b", "b", "b"}, 2)) == "3 rank(s) on b, which has 2 GPU(s)");
  CHECK(complaint<DeviceError>(ranks({"a", "b"}, 0)) == "1 rank(s) on a, which has 0 GPU(s)");
  auto twice = ranks({"a", "b", "b"}, 2);
  twice[2].gpu_uuid = twice[1].gpu_uuid;
  CHECK(complaint<DeviceError>(twice) == "rank 2 on b has the GPU of another rank");
  twice[2].host = "c";  // numbers alone may be the same there
  CHECK(complaint<DeviceError>(twice).empty());
}

TEST_CASE(
    "places of ranks are named after their hosts where there are several, and share their host's lock") {
  const auto names = [](const std::vector<SlotPlace>& places) {
    std::vector<std::string> all;
    for (const auto& place : places) all.push_back(place.name);
    return all;
  };
  CHECK(names(places_of(ranks({"a", "a"}, -1))) == std::vector<std::string>{"cpu:0", "cpu:1"});
  CHECK(names(places_of(ranks({"a", "a"}, 2))) == std::vector<std::string>{"cuda:0", "cuda:1"});
  const auto places = places_of(ranks({"a", "b", "a", "b"}, 2));
  CHECK(names(places) == std::vector<std::string>{"cuda:0@a", "cuda:0@b", "cuda:1@a", "cuda:1@b"});
  CHECK(places[2].place.gpu == 1);
  CHECK(places[3].supervisor == 104);
  CHECK(places[2].place.lock == "/lock1");
  CHECK(places[3].place.lock == "/lock2");
  CHECK_FALSE(places_of(ranks({"a", "a"}, -1))[1].place.gpu);
}

TEST_CASE("launchers are known by what they leave in the environment") {
  const auto processes = [](std::map<std::string, const char*> environment) {
    return launched_processes([environment = std::move(environment)](const char* name) -> const char* {
      const auto found = environment.find(name);
      return found == environment.end() ? nullptr : found->second;
    });
  };
  CHECK(processes({}) == 1);
  CHECK(processes({{"SLURM_NTASKS", "8"}}) == 1);  // a job script, which starts one
  CHECK(processes({{"SLURM_STEP_NUM_TASKS", "1"}, {"PMIX_RANK", "0"}}) == 1);
  CHECK(processes({{"SLURM_STEP_NUM_TASKS", "8"}}) == 8);
  CHECK(processes({{"OMPI_COMM_WORLD_SIZE", "3"}, {"PMIX_RANK", "0"}}) == 3);
  CHECK(processes({{"PMI_SIZE", "4"}}) == 4);
  CHECK(processes({{"PMIX_RANK", "0"}}) == 2);
}
