#include "kernels/selective_scan/sequences.h"

#include "inputs/packed_sequences.h"
#include "kernels/common/tensor_data.h"
#include "ops/selective_scan/selective_scan.h"

namespace ssmbench {
namespace {

const void* after(const void* data, std::int64_t bytes) {
  return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + bytes;
}

}  // namespace

std::optional<std::string> packs_sequences(const Problem& problem) {
  if (PackedSequences(problem).packed) return "has one sequence a batch, no cu_seqlens";
  return {};
}

SequenceScans::SequenceScans(const Problem& problem, const TensorSet& tensors)
    : cu_seqlens_(data_of<const std::int32_t>(tensors, "cu_seqlens")),
      count_(PackedSequences(problem).count),
      element_bytes_(static_cast<std::int64_t>(size_of(problem.dtype()))) {
  const SelectiveScan scan(problem);
  projection_bytes_ = scan.complex ? static_cast<std::int64_t>(size_of(DType::c64)) : element_bytes_;
  state_floats_ = scan.dim * scan.dstate * (scan.complex ? 2 : 1);
}

std::vector<ScanArgs> SequenceScans::of(const ScanArgs& args) const {
  if (cu_seqlens_ == nullptr) return {args};
  std::vector<ScanArgs> all;
  for (std::int64_t m = 0; m < count_; ++m) all.push_back(sequence(args, m));
  return all;
}

ScanArgs SequenceScans::sequence(const ScanArgs& args, std::int64_t m) const {
  const std::int64_t begin = cu_seqlens_[m];
  const std::int64_t bytes = begin * args.sequence.time * element_bytes_;
  ScanArgs one = args;
  one.seqlen = cu_seqlens_[m + 1] - begin;
  one.u = after(args.u, bytes);
  one.delta = after(args.delta, bytes);
  one.z = after(args.z, bytes);
  one.out = const_cast<void*>(after(args.out, bytes));
  one.B = after(args.B, begin * args.b_strides.time * projection_bytes_);  // constant: stride 0
  one.C = after(args.C, begin * args.c_strides.time * projection_bytes_);
  if (args.initial_state != nullptr) one.initial_state = args.initial_state + m * state_floats_;
  one.last_state = args.last_state + m * state_floats_;
  return one;
}

}  // namespace ssmbench
