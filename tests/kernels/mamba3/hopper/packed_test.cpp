// Packed sequences of cuda-hopper of Mamba-3's scan and its gradients: what is in one reaches no other.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "catch.h"
#include "inputs/inputs.h"
#include "support/find_implementation.h"
#include "support/gpu.h"
#include "support/host_tensors.h"
#include "support/mamba3_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

constexpr std::int64_t kSequences = 7;

Problem packed_problem(const OpSpec& op, const char* dtype, std::int64_t dstate) {
  Axes axes{{"dtype", dtype},
            {"batch", size(1)},
            {"seqlen", size(700)},
            {"nheads", size(3)},
            {"headdim", size(64)},
            {"dstate", dstate},
            {"rope_angles", size(32)},
            {"cu_seqlens", true},
            {"sequences", kSequences},
            {"z", true},
            {"D", true},
            {"initial_states", true},
            {"final_states", true}};
  if (&op == &mamba3_mimo_bwd()) axes["mimo_rank"] = size(4);
  return mamba3_problem(axes, op);
}

/// Where a tensor's elements lie in packed sequences: an axis of steps, or of sequences. Others have neither.
struct Along {
  bool steps, sequences;
  std::int64_t inner;  ///< elements to one place of the axis

  explicit Along(const TensorSpec& spec) : steps(false), sequences(false), inner(1) {
    const std::string name =
        spec.name.substr(spec.name.starts_with("d") ? 1 : 0);  // that it is the gradient of
    const bool by_head = name == "ADT" || name == "DT" || name == "Trap";
    sequences = name.starts_with("Input_") || name.starts_with("Final_");
    steps = by_head || (spec.shape.size() >= 4 && !sequences);
    const std::size_t axis = by_head ? 2 : sequences ? 0 : 1;
    for (std::size_t i = axis + 1; i < spec.shape.size(); ++i) inner *= spec.shape[i];
  }
  /// Whether element `index` is of sequence `which`.
  bool is_of(std::int64_t index, const std::vector<std::int64_t>& borders, std::int64_t which) const {
    const auto of = static_cast<std::size_t>(which);
    if (sequences) return index / inner == which;
    const std::int64_t step = index / inner % borders.back();
    return steps && borders[of] <= step && step < borders[of + 1];
  }
};

struct Output {
  TensorSpec spec;
  std::vector<std::byte> bytes;
};

/// What the kernel makes of inputs of which all of sequence `spoilt` are NaN; of none if it is below 0.
std::vector<Output> outputs_with_nan(Device& device, const Problem& problem, std::int64_t spoilt,
                                     std::vector<std::int64_t>& borders) {
  TensorSet tensors;
  std::vector<Device::Buffer> buffers;
  const auto add = [&](const TensorSpec& spec) {
    buffers.push_back(device.allocate(spec.bytes()));
    tensors.add(spec.name, TensorView(static_cast<std::byte*>(buffers.back().get()), spec));
  };
  const auto inputs = generate_inputs(problem, {}, never_stop);
  borders.clear();
  for (const auto& input : inputs)
    if (input.spec.name == "cu_seqlens") {
      const auto* const values = reinterpret_cast<const std::int32_t*>(input.buffer.data());
      borders.assign(values, values + kSequences + 1);
    }
  for (const auto& input : inputs) {
    const TensorView view = input.view();
    const Along along(input.spec);
    for (std::int64_t i = 0; i < element_count(view.shape) && spoilt >= 0; ++i)
      if (along.is_of(i, borders, spoilt)) store_from_double(view.data, i, view.dtype, std::nan(""));
    add(input.spec);
    device.copy_in(buffers.back().get(), input.buffer.data(), input.spec.bytes());
  }
  std::vector<Output> all;
  for (const auto& spec : specs_of(problem, Role::output)) {
    add(spec);
    all.push_back({spec, std::vector<std::byte>(spec.bytes())});
  }
  const Implementation& implementation = find_implementation(problem.op().name, "cuda-hopper");
  const auto workspace = device.allocate(implementation.workspace_bytes(problem));
  implementation.bind(problem, tensors, workspace.get())(device.stream());
  device.synchronize();
  for (Output& output : all)
    device.copy_out(output.bytes.data(), tensors.at(output.spec.name).data, output.bytes.size());
  return all;
}

/// Whether NaN in a sequence is in what is of that one, and all else that is of a sequence keeps its bits.
void check_spoilt(const Problem& problem) {
  const auto device = open_device(DeviceKind::cuda);
  CAPTURE(problem.id());
  std::vector<std::int64_t> borders;
  const auto without = outputs_with_nan(*device, problem, -1, borders);
  for (std::int64_t spoilt = 0; spoilt < kSequences; ++spoilt) {
    const auto with = outputs_with_nan(*device, problem, spoilt, borders);
    for (std::size_t i = 0; i < with.size(); ++i) {
      const Along along(with[i].spec);
      if (!along.steps && !along.sequences) continue;  // a sum over all
      const auto element = static_cast<std::ptrdiff_t>(size_of(with[i].spec.dtype));
      const auto count = static_cast<std::ptrdiff_t>(with[i].bytes.size()) / element;
      std::ptrdiff_t own = 0, others = 0;  // that differ
      for (std::ptrdiff_t at = 0; at < count; ++at)
        if (!std::equal(with[i].bytes.begin() + at * element, with[i].bytes.begin() + (at + 1) * element,
                        without[i].bytes.begin() + at * element))
          ++(along.is_of(at, borders, spoilt) ? own : others);
      CAPTURE(with[i].spec.name, spoilt);
      CHECK(others == 0);
      if (borders[static_cast<std::size_t>(spoilt)] < borders[static_cast<std::size_t>(spoilt) + 1])
        CHECK(own > 0);
    }
  }
}

}  // namespace

TEST_CASE("Mamba-3's cuda-hopper keeps NaN in its packed sequence",
          "[gpu][mamba3][mamba3_hopper][mamba3_packed]") {
  const auto gpu = gpu_or_skip();
  if (!gpu || gpu->details.at("compute_capability") != "9.0") return;
  for (const char* dtype : {"bf16", "f16"})
    for (const std::int64_t dstate : {64, 128})
      check_spoilt(packed_problem(mamba3_siso_fwd(), dtype, dstate));
}

TEST_CASE("the gradients of Mamba-3's cuda-hopper keep NaN in their packed sequence",
          "[gpu][mamba3][mamba3_hopper][mamba3_packed]") {
  const auto gpu = gpu_or_skip();
  if (!gpu || gpu->details.at("compute_capability") != "9.0") return;
  for (const OpSpec* op : {&mamba3_siso_bwd(), &mamba3_mimo_bwd()})
    for (const std::int64_t dstate : {64, 128}) check_spoilt(packed_problem(*op, "bf16", dstate));
}
