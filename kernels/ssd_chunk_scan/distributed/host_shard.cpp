#include "kernels/ssd_chunk_scan/distributed/host_shard.h"

#include <bit>
#include <vector>

#include "kernels/common/cpu/io_types.h"
#include "kernels/distributed/passing_registrations.h"
#include "kernels/distributed/state_passing.h"
#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/cpu/scans.h"
#include "kernels/ssd_chunk_scan/delta.h"
#include "kernels/ssd_chunk_scan/distributed/passed_states.h"
#include "ops/ssd_chunk_scan/sequences.h"

namespace ssmbench::ssd_shards {
namespace {

const void* after(const void* data, std::int64_t elements, DType io) {
  if (data == nullptr) return nullptr;
  return static_cast<const std::byte*>(data) + elements * static_cast<std::int64_t>(size_of(io));
}
void* after(void* data, std::int64_t elements, DType io) {
  if (data == nullptr) return nullptr;
  return static_cast<std::byte*>(data) + elements * static_cast<std::int64_t>(size_of(io));
}

class HostSsdShard : public HostScan {
 public:
  HostSsdShard(const Problem& part, const SsdArgs& args)
      : HostScan(ssd_shards::sizes(part)),
        io_(part.dtype()),
        args_(args),
        in_(args_.in),
        scan_(simd_ssd_scan(part)) {}

  const float* initial_state() const override { return in_.initial_floats(); }
  float* last_state() const override { return args_.final_floats(); }

  void run(IndexRange range, const float* entering, float* leaving, bool outputs, void* /*stream*/) override {
    for (std::int64_t b = 0; b < in_.batch; ++b) run_batch(b, range, entering, leaving, outputs);
  }

  void begin_summary(float* summary, bool decays, void* /*stream*/) override {
    with_io_type(io_, [&]<class Io>(Io) {
      if (!decays) return;
      const std::int64_t rows = in_.batch * in_.nheads;
#pragma omp parallel for schedule(static)
      for (std::int64_t row = 0; row < rows; ++row) add_steps<Io>(row, summary + 2 * row);
    });
    if (in_.seq_idx == nullptr) return;
    for (std::int64_t b = 0; b < in_.batch; ++b) {
      const std::int32_t* numbers = in_.seq_idx + b * in_.seqlen;
      float* to = summary + numbers_at(in_.batch, in_.nheads, b);
      to[0] = std::bit_cast<float>(numbers[0]);
      to[1] = std::bit_cast<float>(numbers[in_.seqlen - 1]);
    }
  }

  void enter(Payloads payloads, int rank, float* state, void* /*stream*/) override {
    const std::int64_t rows = in_.batch * in_.nheads;
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < rows; ++row) enter_head(passed_states(payloads), rank, row, state);
  }

  bool states_may_end() const override {
    return in_.seq_idx != nullptr;
  }

  void enter_from_after(Payloads payloads, std::int64_t carries, int rank, int ranks, float* gradient,
                        void* /*stream*/) override {
    const std::int64_t rows = in_.batch * in_.nheads;
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < rows; ++row)
      enter_head_from_after(passed_states(payloads), carries, rank, ranks, row, gradient);
  }

 private:
  std::int64_t states_of_head() const {
    return in_.headdim * in_.dstate;
  }
  PassedStates passed_states(Payloads payloads) const {
    return {in_.A,   in_.batch, in_.nheads, states_of_head(), in_.seq_idx != nullptr, sizes().state_floats,
            payloads};
  }

  /// One batch at a time: a range of several is not without gaps.
  void run_batch(std::int64_t b, IndexRange range, const float* entering, float* leaving,
                 bool outputs) const {
    const std::int64_t step = b * in_.seqlen + range.begin;
    const std::int64_t state = b * in_.nheads * states_of_head();
    const std::int64_t of_heads = step * in_.nheads * in_.headdim;
    const std::int64_t of_groups = step * in_.groups * in_.dstate;
    SsdArgs args = args_;
    args.in.batch = 1;
    args.in.seqlen = range.count();
    args.in.x = after(in_.x, of_heads, io_);
    args.in.z = after(in_.z, of_heads, io_);
    args.in.dt = after(in_.dt, step * in_.nheads, io_);
    args.in.B = after(in_.B, of_groups, io_);
    args.in.C = after(in_.C, of_groups, io_);
    args.out = outputs ? after(args_.out, of_heads, io_) : nullptr;
    args.in.seq_idx = in_.seq_idx == nullptr ? nullptr : in_.seq_idx + step;
    const bool begins =
        range.begin > 0 && in_.seq_idx != nullptr && in_.seq_idx[step] != in_.seq_idx[step - 1];
    args.in.initial_states = entering == nullptr || begins ? nullptr : entering + state;
    args.final_states = leaving + state;
    scan_(args);
  }

  template <class Io>
  void add_steps(std::int64_t row, float* sum) const {
    const std::int64_t h = row % in_.nheads;
    const float bias = in_.dt_bias == nullptr ? 0.0F : in_.dt_bias[h];
    const StepRule rule{in_.dt_softplus, in_.dt_low, in_.dt_high};
    const auto* dt =
        static_cast<const typename Io::Storage*>(in_.dt) + row / in_.nheads * in_.seqlen * in_.nheads + h;
    double total = 0;
    for (std::int64_t t = 0; t < in_.seqlen; ++t)
      total += step_size(Io::load(dt[t * in_.nheads]), bias, rule);
    sum[0] = static_cast<float>(total);
    sum[1] = static_cast<float>(total - sum[0]);
  }

  /// The states of a (batch, head) that enter the shard of `rank`.
  static void enter_head(const PassedStates& passed, int rank, std::int64_t row, float* state) {
    std::vector<double> decays;
    for (int q = 0; q + 1 < rank; ++q) decays.push_back(passed.through_next(q, row));
    for (std::int64_t i = row * passed.of_head; i < (row + 1) * passed.of_head; ++i)
      state[i] = passed.entering(rank, row, i, [&](int q) { return decays[static_cast<std::size_t>(q)]; });
  }

  static void enter_head_from_after(const PassedStates& passed, std::int64_t carries, int rank, int ranks,
                                    std::int64_t row, float* gradient) {
    std::vector<double> decays(static_cast<std::size_t>(ranks), 0);
    for (int q = rank + 1; q + 1 < ranks; ++q)
      decays[static_cast<std::size_t>(q)] = passed.back_through(q, row);
    for (std::int64_t i = row * passed.of_head; i < (row + 1) * passed.of_head; ++i)
      gradient[i] = passed.from_after(carries, rank, ranks, row, i,
                                      [&](int q) { return decays[static_cast<std::size_t>(q)]; });
  }

  DType io_;
  SsdArgs args_;
  SsdInputs in_;
  SsdCall scan_;
};

}  // namespace

std::optional<std::string> unsupported(const Problem& whole) {
  if (SsdSequences(whole).packed) return "has one sequence a batch, or seq_idx, but no cu_seqlens";
  if (SsdSequences(whole).state_dtype != DType::f32) return "passes states in f32";
  return {};
}

ShardSizes sizes(const Problem& part) {
  const SsdChunkScan scan(part);
  return {.steps = scan.seqlen,
          .state_floats = scan.batch * scan.nheads * scan.headdim * scan.dstate,
          .summary_floats = 2 * scan.batch * (scan.nheads + (scan.has_seq_idx ? 1 : 0))};
}

std::unique_ptr<LocalScan> on_host(const Problem& part, const TensorSet& tensors) {
  return on_host(part, bind_ssd(part, tensors));
}

std::unique_ptr<LocalScan> on_host(const Problem& part, const SsdArgs& args) {
  return std::make_unique<HostSsdShard>(part, args);
}

namespace {

const PassingRegistrations registrations(host_ranks(),
                                         {.op = "ssd_chunk_scan_fwd",
                                          .last_state = "final_states",
                                          .unsupported = unsupported,
                                          .sizes = sizes,
                                          .shard = [](const Problem& part, const TensorSet& tensors,
                                                      void* /*workspace*/) { return on_host(part, tensors); },
                                          .stops = host_stops});

}  // namespace
}  // namespace ssmbench::ssd_shards
