#include "base/glob.h"

#include "catch.h"

using namespace ssmbench;

TEST_CASE("a list of globs matches what any of them matches") {
  CHECK(matches_any_glob("", "cpu-simd"));
  CHECK(matches_any_glob("cpu-simd", "cpu-simd"));
  CHECK(matches_any_glob("cuda-*,cpu-s?md", "cpu-simd"));
  CHECK(matches_any_glob("cpu-scalar,cpu-simd", "cpu-simd"));
  CHECK_FALSE(matches_any_glob("cpu-scalar,cuda-*", "cpu-simd"));
  CHECK_FALSE(matches_any_glob("cpu-sim", "cpu-simd"));
  CHECK_FALSE(matches_any_glob(",", "cpu-simd"));  // an element that is empty matches nothing
  CHECK(matches_any_glob(",cpu-simd,", "cpu-simd"));
}

TEST_CASE("a glob is no list") {
  CHECK(matches_glob("", "a"));
  CHECK(matches_glob("a,*", "a,b"));
  CHECK_FALSE(matches_glob("a,b", "a"));
}
