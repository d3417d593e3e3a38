#pragma once

#include <functional>
#include <utility>

#include "kernels/distributed/local_scan.h"

namespace ssmbench::test {

/// What may go wrong as states are passed.
enum class Mistake {
  none,
  own_shard_twice,
  wrong_neighbour,  ///< of the rank before the one before
  decay_left_out,
  stopped_early,
  last_state_of_first_pass
};

/// A shard with a mistake, in host memory or on a GPU. `elsewhere` has the floats of a state, and zero(at,
/// count) writes zeros, in the shard's memory.
class MistakenScan : public LocalScan {
 public:
  using Zero = std::function<void(float* at, std::int64_t count)>;

  MistakenScan(LocalScan& scan, Mistake mistake, float* elsewhere, Zero zero)
      : LocalScan(scan.sizes()),
        scan_(scan),
        mistake_(mistake),
        elsewhere_(elsewhere),
        zero_(std::move(zero)) {}

  const float* initial_state() const override { return scan_.initial_state(); }
  float* last_state() const override { return scan_.last_state(); }
  void run(IndexRange range, const float* entering, float* leaving, bool outputs, void* stream) override {
    const bool is_last = is_second_pass_ && range.end == sizes().steps;
    scan_.run(range, entering,
              mistake_ == Mistake::last_state_of_first_pass && is_last ? elsewhere_ : leaving, outputs,
              stream);
  }
  /// With the decays that an honest rank does not read.
  void begin_summary(float* summary, bool /*decays*/, void* stream) override {
    scan_.begin_summary(summary, true, stream);
    scan_.end_summary(stream);
    if (mistake_ == Mistake::decay_left_out) zero_(summary, sizes().summary_floats);  // e^(A·0) = 1
  }
  void enter(Payloads payloads, int rank, float* state, void* stream) override {
    int from = rank;
    if (mistake_ == Mistake::own_shard_twice) ++from;
    if (mistake_ == Mistake::wrong_neighbour && rank > 1) --from;
    scan_.enter(payloads, from, state, stream);
  }
  bool states_may_end() const override { return true; }  // enter() is asked
  void enter_from_after(Payloads payloads, std::int64_t carries, int rank, int ranks, float* gradient,
                        void* stream) override {
    scan_.enter_from_after(payloads, carries, rank, ranks, gradient, stream);
  }
  void reset(RerunProgress* progress, void* stream) override {
    is_second_pass_ = true;
    scan_.reset(progress, stream);
  }
  void compare(const float* state, const float* kept, RerunProgress* progress, void* stream) override {
    scan_.compare(state, kept, progress, stream);
  }
  bool is_done(const RerunProgress* progress, void* stream) const override {
    return mistake_ == Mistake::stopped_early || scan_.is_done(progress, stream);
  }
  void copy_state(const float* from, float* to, void* stream) override { scan_.copy_state(from, to, stream); }
  RerunProgress settled(const RerunProgress* progress) const override { return scan_.settled(progress); }

 private:
  LocalScan& scan_;
  Mistake mistake_;
  float* elsewhere_;
  Zero zero_;
  bool is_second_pass_ = false;
};

}  // namespace ssmbench::test
