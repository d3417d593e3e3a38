// cuda-hopper: registration. ssd_chunk_scan's kernel for Hopper scans (its kernel.cuh has the picture), with
// weights of steps and q and k of each head. Either it rotates q and k itself, one head a block
// (rotated_scan.cuh) or two (pairs/kernel.cuh), or prepare.cuh's kernels have done so before. With MIMO it
// scans rows (step, rank), and ranks.cuh has what comes before and after, or a kernel of its own does all of
// it (fused/kernel.cuh).

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <array>
#include <limits>
#include <vector>

#include "base/errors.h"
#include "kernels/common/hopper/device.h"
#include "kernels/mamba3/bind.h"
#include "kernels/mamba3/hopper/fused/fused.h"
#include "kernels/mamba3/hopper/pairs/pairs.h"
#include "kernels/mamba3/hopper/prepare.h"
#include "kernels/mamba3/hopper/ranks.h"
#include "kernels/mamba3/hopper/rotated_plan.h"
#include "kernels/mamba3/hopper/scan.h"
#include "kernels/ssd_chunk_scan/hopper/launch.h"

namespace ssmbench::mamba3_pairs {
extern template mamba3_hopper::RotatedVariant pairs_scan_for<__nv_bfloat16>(int states, bool gated);
extern template mamba3_hopper::RotatedVariant pairs_scan_for<__half>(int states, bool gated);
}  // namespace ssmbench::mamba3_pairs

namespace ssmbench::mamba3_hopper {

extern template ssd_hopper::Variant scan_for<__nv_bfloat16>(int states, bool gated);
extern template ssd_hopper::Variant scan_for<__half>(int states, bool gated);
extern template ssd_hopper::Variant ranked_scan_for<__nv_bfloat16>(int states);
extern template ssd_hopper::Variant ranked_scan_for<__half>(int states);
extern template RotatedVariant rotated_scan_for<__nv_bfloat16>(int states, bool gated);
extern template RotatedVariant rotated_scan_for<__half>(int states, bool gated);
extern template ssd_hopper::PackedVariant packed_scan_for<__nv_bfloat16>(int states, bool gated);
extern template ssd_hopper::PackedVariant packed_scan_for<__half>(int states, bool gated);
extern template ssd_hopper::PackedVariant packed_ranked_scan_for<__nv_bfloat16>(int states);
extern template ssd_hopper::PackedVariant packed_ranked_scan_for<__half>(int states);
extern template PackedRotatedVariant packed_rotated_scan_for<__nv_bfloat16>(int states, bool gated);
extern template PackedRotatedVariant packed_rotated_scan_for<__half>(int states, bool gated);

namespace {

using ssd_hopper::Plan;

/// Of a sequence: (step, rank).
std::int64_t rows_of(const Mamba3& scan) {
  return scan.seqlen * scan.rank;
}

/// A head is a group: q and k are its own.
Plan plan_of(const Mamba3& scan) {
  if (are_packed(scan))
    return ssd_hopper::packed_plan_for(
        {scan.sequences, rows_of(scan), scan.nheads, scan.nheads, scan.headdim}, kMultiprocessors, 1);
  return ssd_hopper::plan_for({scan.batch, rows_of(scan), scan.nheads, scan.nheads, scan.headdim},
                              kMultiprocessors, 1);
}

RotatedPlan rotated_plan_of(const Mamba3& scan) {
  return RotatedPlan({scan.batch, scan.seqlen, scan.nheads, scan.groups, scan.headdim});
}

int padded_dstate(const Mamba3& scan) {
  return scan.dstate <= 64 ? 64 : 128;
}

/// Whether the scan rotates q and k itself: pairs are words of a row, a lane each. A pass of states does not.
bool rotates_itself(const Mamba3& scan, const Plan& plan) {
  return !scan.is_mimo && scan.interleaved && scan.angles % 8 == 0 &&
         scan.angles <= ssd_hopper::kRotatedPairs && plan.parts == 1;
}

std::size_t handed_bytes(const Mamba3& scan, const Plan& plan) {
  const int states = padded_dstate(scan);
  if (are_packed(scan)) return ssd_hopper::PackedLayout(plan, scan.sequences, 0, states).bytes;
  return rotates_itself(scan, plan) ? rotated_plan_of(scan).handed_layout_of(states).bytes
                                    : ssd_hopper::handed_layout_of(plan, states).bytes;
}

/// What is prepared, the rows of ranks, what blocks hand on and where they start, and phases; in bytes. Not of
/// the fused scan, which needs weights of steps alone.
struct Workspace {
  PreparedLayout prepared;
  std::size_t v, y, handed, of_steps, of_chunks, bytes;

  Workspace(const Mamba3& scan, const Plan& plan) : prepared(scan, !rotates_itself(scan, plan)) {
    const std::int64_t rows =
        scan.is_mimo ? scan.batch * rows_of(scan) * scan.nheads * scan.headdim : 0;  // elements
    const std::int64_t angles = rotates_itself(scan, plan) ? scan.nheads * scan.angles : 0;
    WorkspaceLayout layout;
    layout.take(static_cast<std::int64_t>(prepared.bytes), 1);
    v = layout.take(rows, 2);
    y = layout.take(rows, sizeof(float));
    handed = layout.take(static_cast<std::int64_t>(handed_bytes(scan, plan)), 1);
    of_steps = layout.take(angles * scan.batch * scan.seqlen, sizeof(std::uint16_t));
    of_chunks = layout.take(angles * phase_chunks(scan), sizeof(std::uint32_t));
    bytes = layout.bytes();
  }
};

std::optional<std::string> unsupported(const Problem& problem) {
  const Mamba3 scan(problem);
  if (problem.dtype() == DType::f32) return "needs tensors of 16-bit elements";
  if (scan.headdim % 8 != 0 || scan.dstate % 8 != 0)
    return "needs headdim and dstate that are multiples of 8: rows of 16-byte vectors";
  if (scan.dstate > kMaxPreparedStates)
    return "needs dstate of at most 128: states of 64 rows are held in registers";
  if (scan.rank > 8 || (scan.rank & (scan.rank - 1)) != 0)
    return "needs a rank of 1, 2, 4 or 8: chunks are 64 rows of steps and ranks";
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::int64_t tiles = ceil_div(scan.headdim, ssd_hopper::kRows);
  const std::int64_t chunks =
      ceil_div(rows_of(scan), ssd_hopper::kSteps) + (are_packed(scan) ? scan.sequences : 0);
  if (rows_of(scan) > kMost - 2 * ssd_hopper::kSteps || scan.nheads > kMost / tiles ||
      chunks > kMost / (scan.nheads * tiles) || scan.batch > kMost / (scan.nheads * tiles * chunks))
    return "needs at most 2147483647 chunks of 64 steps, or rows of ranks, and 64 head dims";
  if (hopper::wrong_device()) return "needs a GPU of compute capability 9.0";
  return {};
}

std::size_t workspace_bytes(const Problem& problem) {
  const Mamba3 scan(problem);
  if (mamba3_fused::takes(scan, problem.dtype())) return PreparedLayout(scan, false).bytes;
  return Workspace(scan, plan_of(scan)).bytes;
}

/// The scan as one of Mamba-2's kind: of V with Q and K, of rows that are prepared, or with MIMO of rows of
/// ranks, which have skip and gates behind it.
SsdArgs scan_args(const Mamba3Args& args, const PreparedRows& rows, bool is_prepared, const RankRows& ranks) {
  const Mamba3& scan = args.scan;
  SsdArgs to{};
  to.in.batch = scan.batch;
  to.in.seqlen = rows_of(scan);
  to.in.nheads = scan.nheads;
  to.in.headdim = scan.headdim;
  to.in.dstate = scan.dstate;
  to.in.groups = is_prepared ? scan.nheads : scan.groups;
  to.in.heads_per_group = scan.nheads / to.in.groups;
  to.in.x = scan.is_mimo ? ranks.v : args.V;
  to.in.B = is_prepared ? rows.k : args.K;
  to.in.C = is_prepared ? rows.q : args.Q;
  to.in.initial_states = rows.seed;
  to.final_states = args.final_ssm;
  if (scan.is_mimo) return to;
  to.in.D = args.D;
  to.in.z = args.Z;
  to.out = args.out;
  return to;
}

ssd_hopper::Rotation rotation_of(const Mamba3Args& args, const ChunkPhases& phases) {
  const Mamba3& scan = args.scan;
  const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  return {.phases = hopper::tensor_map(
              {.data = phases.of_steps,
               .rank = 4,
               .sizes = {size(scan.angles), size(scan.nheads), size(scan.seqlen), size(scan.batch)},
               .tile = {ssd_hopper::kRotatedPairs, 1, ssd_hopper::kSteps, 1},
               .swizzle = CU_TENSOR_MAP_SWIZZLE_NONE,
               .promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE}),
          .of_chunks = phases.of_chunks,
          .heads_per_group = static_cast<int>(scan.heads_per_group()),
          .angles = static_cast<int>(scan.angles),
          .B_bias = args.K_bias,
          .C_bias = args.Q_bias,
          .input_angle = args.input_angle,
          .final_angle = args.final_angle,
          .final_B = args.final_k};
}

ssd_hopper::Variant variant_of(const Mamba3Args& args, DType dtype) {
  const int states = padded_dstate(args.scan);
  if (args.scan.is_mimo)
    return dtype == DType::f16 ? ranked_scan_for<__half>(states) : ranked_scan_for<__nv_bfloat16>(states);
  const bool gated = args.Z != nullptr;
  return dtype == DType::f16 ? scan_for<__half>(states, gated) : scan_for<__nv_bfloat16>(states, gated);
}

ssd_hopper::PackedVariant packed_variant_of(const Mamba3Args& args, DType dtype) {
  const int states = padded_dstate(args.scan);
  if (args.scan.is_mimo)
    return dtype == DType::f16 ? packed_ranked_scan_for<__half>(states)
                               : packed_ranked_scan_for<__nv_bfloat16>(states);
  const bool gated = args.Z != nullptr;
  return dtype == DType::f16 ? packed_scan_for<__half>(states, gated)
                             : packed_scan_for<__nv_bfloat16>(states, gated);
}

template <class Kernel>
void allow_shared_bytes(Kernel* kernel, int bytes) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

/// All launches, one after the other.
Launch together(const std::vector<Launch>& launches) {
  return [launches](void* stream) {
    for (const Launch& launch : launches) launch(stream);
  };
}

RotatedVariant rotated_variant_of(const Mamba3Args& args, DType dtype, bool has_pairs) {
  const int states = padded_dstate(args.scan);
  const bool gated = args.Z != nullptr;
  if (dtype == DType::f16)
    return has_pairs ? mamba3_pairs::pairs_scan_for<__half>(states, gated)
                     : rotated_scan_for<__half>(states, gated);
  return has_pairs ? mamba3_pairs::pairs_scan_for<__nv_bfloat16>(states, gated)
                   : rotated_scan_for<__nv_bfloat16>(states, gated);
}

/// `phases`, and the scan that rotates q and k itself, which begins while they end. `scan` has no plan yet.
Launch rotated_launch(const Mamba3Args& args, DType dtype, const Launch& phases, ssd_hopper::HopperArgs scan,
                      void* handed) {
  const RotatedPlan plan = rotated_plan_of(args.scan);
  scan.plan = plan.plan;
  scan.handed = handed_states(plan.handed_layout_of(padded_dstate(args.scan)), handed);
  const RotatedVariant variant = rotated_variant_of(args, dtype, plan.has_pairs);
  allow_shared_bytes(variant.kernel, variant.shared_bytes);
  return [=](void* queue) {
    const auto stream = static_cast<cudaStream_t>(queue);
    if (scan.plan.hands_over())
      check_cuda(
          cudaMemsetAsync(scan.handed.flags, 0, std::size_t(scan.plan.blocks) * sizeof(unsigned), stream));
    phases(stream);
    ssd_hopper::launch_plan(hopper::Begin::early, stream, variant.kernel, variant.threads,
                            variant.shared_bytes, scan);
  };
}

/// The same for packed sequences, and before it where blocks start.
Launch packed_rotated_launch(const Mamba3Args& args, DType dtype, const Launch& phases,
                             const ssd_hopper::PackedArgs& scan) {
  const int states = padded_dstate(args.scan);
  const bool gated = args.Z != nullptr;
  const PackedRotatedVariant variant = dtype == DType::f16
                                           ? packed_rotated_scan_for<__half>(states, gated)
                                           : packed_rotated_scan_for<__nv_bfloat16>(states, gated);
  allow_shared_bytes(variant.kernel, variant.shared_bytes);
  return together(
      {ssd_hopper::packed_plan_launch(scan, static_cast<int>(args.scan.sequences), nullptr), phases,
       hopper::dependent_launch_of(variant.kernel, scan.plan.blocks, static_cast<unsigned>(variant.threads),
                                   variant.shared_bytes, scan)});
}

/// The scan of what is prepared.
Launch prepared_launch(const Mamba3Args& args, DType dtype, const ssd_hopper::HopperArgs& scan) {
  const ssd_hopper::Variant variant = variant_of(args, dtype);
  allow_shared_bytes(variant.kernel, variant.shared_bytes);
  allow_shared_bytes(variant.parts_kernel, variant.parts_shared_bytes);
  return [=, states = padded_dstate(args.scan)](void* stream) {
    ssd_hopper::launch(variant, scan, states, static_cast<cudaStream_t>(stream));
  };
}

/// The same for packed sequences, and before it where blocks start. With ranks cu_seqlens are of rows.
Launch packed_prepared_launch(const Mamba3Args& args, DType dtype, const PreparedRows& rows,
                              ssd_hopper::PackedArgs scan) {
  const ssd_hopper::PackedVariant variant = packed_variant_of(args, dtype);
  allow_shared_bytes(variant.kernel, variant.shared_bytes);
  allow_shared_bytes(variant.parts_kernel, variant.parts_shared_bytes);
  std::vector<Launch> launches;
  if (args.scan.is_mimo) {
    launches.push_back(launch_row_borders(args, rows));
    scan.cu_seqlens = rows.row_borders;
  }
  launches.push_back(ssd_hopper::packed_launch(variant, scan, static_cast<int>(args.scan.sequences), nullptr,
                                               padded_dstate(args.scan)));
  return together(launches);
}

void check_alignment(const Mamba3Args& args) {
  for (const void* tensor : std::array<const void*, 15>{
           args.Q, args.K, args.V, args.Z, args.rates, args.out, args.Q_bias, args.K_bias, args.mimo_v,
           args.mimo_z, args.mimo_out, args.norm, args.input_ssm, args.input_k, args.final_k})
    if (reinterpret_cast<std::uintptr_t>(tensor) % 16 != 0)
      throw ContractError("cuda-hopper needs tensors that are aligned to 16 bytes");
}

/// The scan, with what is done to q and k before it.
struct ScanParts {
  PreparedRows rows;
  ChunkPhases phases;
  SsdArgs ssd;
  Plan plan;
  ssd_hopper::GivenWeights weights;
  void* handed;
};
Launch scan_launch(const Mamba3Args& args, DType dtype, const ScanParts& parts) {
  const Mamba3& scan = args.scan;
  const int states = padded_dstate(scan);
  const bool rotates = rotates_itself(scan, parts.plan);
  const Launch before = rotates ? launch_phases(args, dtype, parts.rows, parts.phases)
                                : launch_prepare(args, dtype, parts.rows);
  if (are_packed(scan)) {
    ssd_hopper::PackedArgs packed = ssd_hopper::make_packed_args(
        parts.ssd, {scan.sequences, rows_of(scan), args.cu_seqlens}, {}, parts.plan, states, parts.handed);
    packed.given = parts.weights;
    if (!rotates) return together({before, packed_prepared_launch(args, dtype, parts.rows, packed)});
    packed.rotation = rotation_of(args, parts.phases);
    return packed_rotated_launch(args, dtype, before, packed);
  }
  ssd_hopper::HopperArgs whole = ssd_hopper::make_args(parts.ssd, parts.plan, states, parts.handed);
  whole.given = parts.weights;
  if (!rotates) return together({before, prepared_launch(args, dtype, whole)});
  whole.rotation = rotation_of(args, parts.phases);
  return rotated_launch(args, dtype, before, whole, parts.handed);
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-hopper " + *reason);
  const Mamba3Args args = bind_mamba3(problem, tensors);
  check_alignment(args);
  const DType dtype = problem.dtype();
  if (mamba3_fused::takes(args.scan, dtype)) {
    const PreparedRows weights = PreparedLayout(args.scan, false).at(args, workspace);
    return together({launch_weights(args, dtype, weights), mamba3_fused::launch_fused(args, dtype, weights)});
  }
  const Plan plan = plan_of(args.scan);
  const Workspace at(args.scan, plan);
  auto* const base = static_cast<unsigned char*>(workspace);
  const PreparedRows rows = at.prepared.at(args, workspace);
  const RankRows ranks{base + at.v, reinterpret_cast<float*>(base + at.y)};
  const Launch scan =
      scan_launch(args, dtype,
                  {.rows = rows,
                   .phases = {reinterpret_cast<std::uint16_t*>(base + at.of_steps),
                              reinterpret_cast<std::uint32_t*>(base + at.of_chunks)},
                   .ssd = scan_args(args, rows, !rotates_itself(args.scan, plan), ranks),
                   .plan = plan,
                   .weights = {.log_decay = rows.log_decay,
                               .later = rows.s,
                               .own = rows.gamma,
                               .rank_shift = ceil_log2(static_cast<std::uint64_t>(args.scan.rank)),
                               .rows = ranks.y},
                   .handed = base + at.handed});
  if (!args.scan.is_mimo) return scan;
  return together(
      {launch_up_projection(args, dtype, ranks), scan, launch_down_projection(args, dtype, ranks)});
}

Implementation implementation_of(const char* op) {
  return {
      .name = "cuda-hopper",
      .op = op,
      .device = DeviceKind::cuda,
      .summary = "q and k rotated, and Mamba-2's scan by wgmma and TMA; for compute capability 9.0",
      .arithmetic = [](DType io) { return Arithmetic{.math = io == DType::f16 ? Math::f16 : Math::bf16}; },
      .unsupported = unsupported,
      .workspace_bytes = workspace_bytes,
      .bind = bind};
}

const Registration siso{implementation_of("mamba3_siso_fwd")};
const Registration mimo{implementation_of("mamba3_mimo_fwd")};

}  // namespace
}  // namespace ssmbench::mamba3_hopper
