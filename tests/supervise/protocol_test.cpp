#include "supervise/protocol.h"

#include <unistd.h>

#include <array>

#include "base/errors.h"
#include "catch.h"

using namespace ssmbench;

TEST_CASE("what a worker says is understood") {
  using Kind = Message::Kind;
  for (const Stage stage : {Stage::inputs, Stage::reference, Stage::run}) {
    const Message message = parse_message(to_line({.kind = Kind::starting, .job = 12, .stage = stage}));
    CHECK(message.kind == Kind::starting);
    CHECK(message.job == 12);
    CHECK(message.stage == stage);
  }
  const std::string record = R"({"record":"case", "reason":" two  spaces "})";
  const Message finished = parse_message(to_line({.kind = Kind::finished, .job = 3, .text = record}));
  CHECK(finished.kind == Kind::finished);
  CHECK(finished.job == 3);
  CHECK(finished.text == record);
  CHECK(parse_message(to_line({.kind = Kind::failed, .text = "disk\nfull"})).text == "disk full");
  CHECK(parse_message(to_line({.kind = Kind::leaving})).kind == Kind::leaving);
  CHECK(parse_message(to_line({.kind = Kind::waiting})).kind == Kind::waiting);
  CHECK(parse_message(to_line({.kind = Kind::done})).kind == Kind::done);
}

TEST_CASE("what no worker says is refused") {
  for (const char* line :
       {"", "finish 3 {}", "starting x inputs", "starting 3 lunch", "finished", "\x01\xff"}) {
    INFO(line);
    CHECK_THROWS_AS(parse_message(line), ProtocolError);
  }
}

TEST_CASE("a worker finds its orders as they were given, one after the other, until they end") {
  const std::string bytes =
      to_bytes(WorkerOrders{.supervisor = 7,
                            .plan = "p",
                            .dump_folder = "\xff",
                            .ceilings = {{"cuda:0", {.dram_bytes = 4.25e12, .fmas = 0.1}}},
                            .place = {.lock = "/l", .gpu = 3, .cpus = {4, 5}, .all_cpus = {4, 5, 6}}}) +
      to_bytes(JobSet{true, false, true, true}) + to_bytes(JobSet{false, false, false, false}) +
      to_bytes(JobSet{false, true, false, true});
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  REQUIRE(write(ends[1], bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  close(ends[1]);
  const WorkerOrders orders = read_orders(ends[0]);
  CHECK(orders.supervisor == 7);
  CHECK(orders.dump_folder == "\xff");
  REQUIRE(orders.ceilings.size() == 1);
  CHECK(orders.ceilings.at("cuda:0").dram_bytes == 4.25e12);
  CHECK(orders.ceilings.at("cuda:0").fmas == 0.1);
  CHECK(orders.ceilings.at("cuda:0").bf16_flops == 0);
  CHECK(orders.place.lock == "/l");
  CHECK(orders.place.gpu == 3);
  CHECK(orders.place.cpus == std::vector<int>{4, 5});
  CHECK(orders.place.all_cpus == std::vector<int>{4, 5, 6});
  CHECK(next_jobs(ends[0], 4) == JobSet{true, false, true, true});
  CHECK(next_jobs(ends[0], 4) == JobSet{false, false, false, false});
  CHECK(next_jobs(ends[0], 4) == JobSet{false, true, false, true});
  CHECK_FALSE(next_jobs(ends[0], 4));
  close(ends[0]);
}

TEST_CASE("orders are for workers, who find them at their descriptor") {
  CHECK_THROWS_AS(read_orders(-1), UsageError);
}
