#include "verify/same_bits.h"

#include <cmath>
#include <cstring>

#include "catch.h"

using namespace ssmbench;

TEST_CASE("the first element of other bits is found by its logical index, in any layout") {
  const Shape shape = {2, 3, 1, 5};
  const Shape changed = {1, 2, 0, 3};
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2, 3}, {0, 3, 2, 1}, {2, 3, 0, 1}}) {
    const TensorSpec spec{.name = "x", .shape = shape, .storage_order = order};
    const HostTensor a(spec);
    const HostTensor b(spec);
    std::memset(a.buffer.data(), 0, spec.bytes());
    std::memset(b.buffer.data(), 0, spec.bytes());
    CHECK_FALSE(first_difference(a.view(), b.view()));
    auto* const values = static_cast<float*>(b.buffer.data());
    values[offset_of(changed, spec.strides())] = -0.0F;  // equal, and other bits
    CHECK(first_difference(a.view(), b.view()) == changed);
    values[29] = 1;  // later in memory
    CHECK(first_difference(a.view(), b.view()) == changed);
  }
}

TEST_CASE("the same NaN is the same bits") {
  const TensorSpec spec{.name = "x", .shape = {2}, .storage_order = {0}};
  const HostTensor a(spec);
  std::memset(a.buffer.data(), 0xFF, spec.bytes());
  CHECK_FALSE(first_difference(a.view(), a.view()));
}
