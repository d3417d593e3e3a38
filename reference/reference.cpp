#include "reference/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "reference/common/zeros.h"

namespace ssmbench {
namespace {

std::vector<Reference>& registry() {
  static std::vector<Reference> all;
  return all;
}

const Reference& reference_of(const Problem& problem) {
  const auto found = std::ranges::find(registry(), problem.op().name, &Reference::op);
  if (found == registry().end())
    throw std::logic_error(fmt::format("{} has no reference", problem.op().name));
  return *found;
}

IndexRange all_channels(const ChannelReference& reference, const Problem& problem) {
  return {0, reference.cuts(problem).back()};
}

std::int64_t most_channels(const std::vector<IndexRange>& ranges) {
  return std::ranges::max(ranges, {}, &IndexRange::count).count();
}

/// As few ranges as `bytes` allow, of as equal numbers of cuts as can be: threads share out those of a range.
std::vector<IndexRange> ranges_within(const ChannelReference& reference, const Problem& problem,
                                      std::size_t bytes) {
  const auto cuts = reference.cuts(problem);
  const auto ranges_of = [&](std::size_t together) {
    std::vector<IndexRange> ranges;
    for (std::size_t first = 0; first + 1 < cuts.size(); first += together)
      ranges.push_back({cuts[first], cuts[std::min(first + together, cuts.size() - 1)]});
    return ranges;
  };
  const std::size_t all = cuts.size() - 1;
  for (std::size_t count = 1; count < all; ++count) {
    auto ranges = ranges_of((all + count - 1) / count);
    if (reference.bytes(problem, most_channels(ranges)) <= bytes) return ranges;
  }
  return ranges_of(1);
}

}  // namespace

ReferenceRegistration::ReferenceRegistration(Reference reference) {
  registry().push_back(std::move(reference));
}

ReferenceOutput empty_output(Shape shape) {
  const auto count = static_cast<std::size_t>(element_count(shape));
  return {std::move(shape), zeros<double>(count), zeros<float>(count)};
}

std::size_t output_bytes(const Problem& problem, bool (*has_third)(const TensorSpec& output)) {
  return output_bytes(problem, {}, has_third);
}

std::size_t output_bytes(const Problem& problem, const Box& box,
                         bool (*has_third)(const TensorSpec& output)) {
  std::size_t bytes = 0;
  for (const auto& tensor : problem.tensors()) {
    if (tensor.role != Role::output) continue;
    const std::int64_t elements =
        element_count(part_of(tensor, box).shape) * (tensor.dtype == DType::c64 ? 2 : 1);
    bytes +=
        static_cast<std::size_t>(elements) * (sizeof(double) + (has_third(tensor) ? 2 : 1) * sizeof(float));
  }
  return bytes;
}

ReferenceOutputs compute_reference(const Problem& problem, const TensorSet& inputs,
                                   const std::atomic<bool>& stop) {
  const Reference& reference = reference_of(problem);
  if (!reference.by_channels) return reference.compute(problem, inputs, stop);
  return reference.by_channels->start(problem, inputs)
      ->compute(all_channels(*reference.by_channels, problem), stop);
}

ReferenceParts::ReferenceParts(const Problem& problem, const TensorSet& inputs, std::size_t bytes)
    : problem_(problem), inputs_(inputs) {
  const auto& by_channels = reference_of(problem).by_channels;
  if (!by_channels) {
    ranges_ = {{0, 0}};
    return;
  }
  letter_ = by_channels->letter;
  by_channels_ = by_channels->start(problem, inputs);
  ranges_ = ranges_within(*by_channels, problem, bytes);
  std::ranges::reverse(ranges_);
}

std::optional<ReferenceParts::Part> ReferenceParts::next(const std::atomic<bool>& stop) {
  if (ranges_.empty()) return {};
  const IndexRange range = ranges_.back();
  ranges_.pop_back();
  if (by_channels_ == nullptr) return Part{{}, compute_reference(problem_, inputs_, stop)};
  return Part{{{letter_, range}}, by_channels_->compute(range, stop)};
}

bool reference_depends_on_dtype(const Problem& problem) {
  const auto depends = reference_of(problem).depends_on_dtype;
  return depends != nullptr && depends(problem);
}

std::size_t reference_bytes(const Problem& problem) {
  const Reference& reference = reference_of(problem);
  if (!reference.by_channels) return reference.bytes(problem);
  return reference.by_channels->bytes(problem, all_channels(*reference.by_channels, problem).count());
}

std::size_t reference_bytes_in_parts(const Problem& problem, std::size_t bytes) {
  const auto& by_channels = reference_of(problem).by_channels;
  if (!by_channels) return reference_bytes(problem);
  return by_channels->bytes(problem, most_channels(ranges_within(*by_channels, problem, bytes)));
}

}  // namespace ssmbench
