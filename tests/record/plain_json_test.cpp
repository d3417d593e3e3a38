#include "record/plain_json.h"

#include <string>

#include "catch.h"
#include "support/run_command.h"

using namespace ssmbench;
using Json = nlohmann::json;

namespace {

/// Whether it says of the text what the library says, or nothing.
bool agrees(const std::string& text) {
  const auto plain = parse_plain_json(text);
  return !plain || (Json::accept(text) && plain->dump() == Json::parse(text).dump());
}

const std::string kRecord =
    R"({"a":{"b":[0,-7,12.5,-0.0625,1e-7,3E+2,18446744073709551615],"c":"x y","":{}},"d":[],)"
    R"("e":[true,false,null,[[]]],"d":8.619629586481548e-09,"f":-0})";

}  // namespace

TEST_CASE("plain JSON is read as the library reads it") {
  const auto plain = parse_plain_json(kRecord);
  REQUIRE(plain);
  CHECK(*plain == Json::parse(kRecord));
  for (const char* number : {"0", "-0", "7", "-7", "0.1", "-0.0", "5e-324", "1.7976931348623157e308", "1e5",
                             "9007199254740993", "2.2250738585072011e-308", "0.30000000000000004"}) {
    INFO(number);
    const auto value = parse_plain_json(number);
    REQUIRE(value);
    CHECK(value->type() == Json::parse(number).type());
    CHECK(value->dump() == Json::parse(number).dump());
  }
}

TEST_CASE("what is not plain, or no JSON, is left to the library") {
  for (const char* text : {"",
                           " 1",
                           "1 ",
                           "01",
                           "-",
                           "+1",
                           ".5",
                           "1.",
                           "1e",
                           "1e+",
                           "--1",
                           "1e999",
                           "18446744073709551616",
                           "nul",
                           "truefalse",
                           "inf",
                           "nan",
                           "\"",
                           "\"a",
                           "\"\\n\"",
                           "\"\xC3\x97\"",
                           "\"\t\"",
                           "[",
                           "[1",
                           "[1,",
                           "[1,]",
                           "[,1]",
                           "[1 ,2]",
                           "{",
                           "{}}",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{1:2}",
                           "{\"a\":1]",
                           "[1}"}) {
    INFO(text);
    CHECK_FALSE(parse_plain_json(text));
  }
  CHECK_FALSE(parse_plain_json(std::string(100'000, '[')));
}

TEST_CASE("whatever becomes of a character, plain JSON is what the library reads") {
  for (std::size_t i = 0; i < kRecord.size(); ++i) {
    for (const char c : std::string("{}[]\",:0-.eE+tn \\\x01\x80")) {
      std::string changed = kRecord;
      changed[i] = c;
      INFO(changed);
      CHECK(agrees(changed));
      CHECK(agrees(changed.insert(i, 1, kRecord[i])));
    }
    CHECK(agrees(kRecord.substr(0, i)));
  }
}

TEST_CASE("the records of a run are plain JSON, which is read in half of the time") {
  const auto result = test::run_ssmbench(
      "run configs/small.json --device cpu --dtype f32 --impl cpu-simd --case '*-bld-*' --runs 1 --json -");
  std::size_t lines = 0;
  for (std::size_t begin = 0; begin < result.out.size(); ++lines) {
    const std::size_t end = result.out.find('\n', begin);
    const std::string line = result.out.substr(begin, end - begin);
    INFO(line);
    CHECK(parse_plain_json(line).has_value());
    begin = end + 1;
  }
  CHECK(lines > 3);
}
