#include "base/printable.h"

#include "catch.h"

using ssmbench::printable;

TEST_CASE("foreign text for a terminal has no control characters") {
  CHECK(printable("plain, Δ ≤ ½") == "plain, Δ ≤ ½");
  CHECK(printable("a\nb\tc\rd\x1b[2Je\x7f") == "a\\nb\\tc\\x0dd\\x1b[2Je\\x7f");
  CHECK(printable(std::string_view("\0", 1)) == "\\x00");
  CHECK(printable("\xC2\x9B") == "\\u009b");  // CSI in one character
  CHECK(printable("\xC2\xA0\xC2") == "\xC2\xA0\xC2");
}
