#include "team/staged_team.h"

#include <algorithm>

namespace ssmbench {
namespace {

const std::byte* byte_at(const void* data, std::size_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}
std::byte* byte_at(void* data, std::size_t offset) {
  return static_cast<std::byte*>(data) + offset;
}

/// Calls function(begin, count) for pieces; once where there is nothing.
template <class Function>
void for_pieces(std::size_t bytes, const Function& function) {
  std::size_t begin = 0;
  do {
    function(begin, std::min(StagedTeam::kPiece, bytes - begin));
    begin += StagedTeam::kPiece;
  } while (begin < bytes);
}

}  // namespace

std::byte* StagedTeam::staging(std::size_t bytes) {
  if (void* pinned = device_.pinned_memory(bytes)) return static_cast<std::byte*>(pinned);
  pageable_.resize(std::max(pageable_.size(), bytes));
  return pageable_.data();
}

void StagedTeam::all_gather(const void* from, void* to, std::size_t bytes, void* /*stream*/) {
  const auto ranks = static_cast<std::size_t>(size());
  for_pieces(bytes, [&](std::size_t begin, std::size_t count) {
    std::byte* const own = staging((ranks + 1) * count);
    std::byte* const all = own + count;
    device_.copy_out(own, byte_at(from, begin), count);
    host_.all_gather(own, all, count, nullptr);
    for (std::size_t rank = 0; rank < ranks; ++rank)
      device_.copy_in(byte_at(to, rank * bytes + begin), all + rank * count, count);
  });
}

void StagedTeam::all_reduce(float* values, std::size_t count, void* /*stream*/) {
  for_pieces(count * sizeof(float), [&](std::size_t begin, std::size_t bytes) {
    std::byte* const own = staging(bytes);
    device_.copy_out(own, byte_at(values, begin), bytes);
    host_.all_reduce(reinterpret_cast<float*>(own), bytes / sizeof(float), nullptr);
    device_.copy_in(byte_at(values, begin), own, bytes);
  });
}

void StagedTeam::all_to_all(const void* from, void* to, std::size_t bytes, void* /*stream*/) {
  const auto ranks = static_cast<std::size_t>(size());
  for_pieces(bytes, [&](std::size_t begin, std::size_t count) {
    std::byte* const sent = staging(2 * ranks * count);
    std::byte* const received = sent + ranks * count;
    for (std::size_t rank = 0; rank < ranks; ++rank)
      device_.copy_out(sent + rank * count, byte_at(from, rank * bytes + begin), count);
    host_.all_to_all(sent, received, count, nullptr);
    for (std::size_t rank = 0; rank < ranks; ++rank)
      device_.copy_in(byte_at(to, rank * bytes + begin), received + rank * count, count);
  });
}

void StagedTeam::send(const void* from, std::size_t bytes, int to, void* /*stream*/) {
  for_pieces(bytes, [&](std::size_t begin, std::size_t count) {
    std::byte* const piece = staging(count);
    device_.copy_out(piece, byte_at(from, begin), count);
    host_.send(piece, count, to, nullptr);
  });
}

void StagedTeam::receive(void* to, std::size_t bytes, int from, void* /*stream*/) {
  for_pieces(bytes, [&](std::size_t begin, std::size_t count) {
    std::byte* const piece = staging(count);
    host_.receive(piece, count, from, nullptr);
    device_.copy_in(byte_at(to, begin), piece, count);
  });
}

}  // namespace ssmbench
