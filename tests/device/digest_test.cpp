#include "device/digest.h"

#include <algorithm>
#include <array>
#include <vector>

#include "catch.h"
#include "device/device.h"
#include "support/gpu.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

std::vector<unsigned char> some_bytes(std::size_t count) {
  std::vector<unsigned char> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(i * i * 37 % 251);
  return bytes;
}

}  // namespace

TEST_CASE("every bit of every byte counts, and so does the order") {
  for (const std::size_t count : {1, 7, 8, 9, 33}) {
    auto bytes = some_bytes(count);
    const auto right = digest({bytes.data(), count});
    for (std::size_t bit = 0; bit < 8 * count; ++bit) {
      bytes[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
      CHECK(digest({bytes.data(), count}) != right);
      bytes[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
    }
    CHECK(digest({bytes.data(), count}) == right);
  }
  std::array<std::uint64_t, 4> words = {1, 2, 3, 4};
  const auto right = digest({words.data(), sizeof(words)});
  std::swap(words[1], words[2]);
  CHECK(digest({words.data(), sizeof(words)}) != right);
}

TEST_CASE("what many threads digest has the digest that one has") {
  const auto bytes = some_bytes(1 << 20);
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::copy_n(bytes.data() + at, 8, reinterpret_cast<unsigned char*>(&word));
    sum += digest_of_word(word, at / 8);
  }
  CHECK(digest({bytes.data(), bytes.size()}) == sum);
}

TEST_CASE("a GPU digests as the CPU does, any number of spans at any address", "[gpu]") {
  const auto cuda = gpu_or_skip();
  if (!cuda) return;
  const auto device = open_device(DeviceKind::cuda, cuda->index);
  const auto bytes = some_bytes(std::size_t{9} << 20);  // more than one wave of blocks reads at once
  const auto buffer = device->allocate(bytes.size());
  device->copy_in(buffer.get(), bytes.data(), bytes.size());
  std::vector<MemorySpan> on_host = {{bytes.data(), bytes.size()}};
  for (std::size_t i = 0; i < 150; ++i) on_host.push_back({bytes.data() + i, 4096 + i % 9});
  on_host.push_back({bytes.data(), 0});
  std::vector<MemorySpan> on_device;
  for (const auto& span : on_host)
    on_device.push_back({static_cast<const unsigned char*>(buffer.get()) +
                             (static_cast<const unsigned char*>(span.data) - bytes.data()),
                         span.bytes});
  const auto digests = device->digests(on_device);
  REQUIRE(digests.size() == on_host.size());
  for (std::size_t i = 0; i < on_host.size(); ++i) {
    INFO(i);
    CHECK(digests[i] == digest(on_host[i]));
  }
}
