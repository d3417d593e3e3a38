#include "supervise/protocol.h"

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
  CHECK(parse_message(to_line({.kind = Kind::done})).kind == Kind::done);
}

TEST_CASE("what no worker says is refused") {
  for (const char* line :
       {"", "finish 3 {}", "starting x inputs", "starting 3 lunch", "finished", "\x01\xff"}) {
    INFO(line);
    CHECK_THROWS_AS(parse_message(line), ProtocolError);
  }
}

TEST_CASE("orders are for workers, who find them at their descriptor") {
  CHECK_THROWS_AS(read_orders(-1), UsageError);
}
