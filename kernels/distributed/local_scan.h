#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"
#include "model/box.h"
#include "model/communicator.h"

namespace ssmbench {

/// How far a second pass has come; in the memory of the device. It begins with zeros.
struct RerunProgress {
  std::int32_t done;    ///< states have been equal: nothing is left to do
  std::int32_t ranges;  ///< that have been run again
  std::int32_t differ;  ///< while a comparison is under way: whether it has found a difference
};

/// What a shard takes.
struct ShardSizes {
  std::int64_t steps;
  std::int64_t state_floats;    ///< floats of all its states
  std::int64_t summary_floats;  ///< of what the other ranks have to know of its decays

  /// What a rank gives to all: the state that leaves its shard, then its summary.
  std::int64_t payload_floats() const { return state_floats + summary_floats; }
};

/// Whether anybody asks for the decays of a rank's shard: states pass through those between the first and the
/// last.
inline bool decays_matter(const Communicator& team) {
  return team.rank() > 0 && team.rank() + 1 < team.size();
}

/// What all ranks have given, `stride` floats of each: first ShardSizes::payload_floats().
struct Payloads {
  const float* data;
  std::int64_t stride;

  SSMBENCH_HD const float* of(int rank) const { return data + rank * stride; }
};

/// A rank's shard of a scan along time, on its device: what algorithms over several ranks are made of. What a
/// state that enters adds to the one that leaves is the product of the shard's decays with it; the *summary*
/// is what these products are made of.
///
/// Pointers are to the device's memory, and everything is enqueued on `stream`.
class LocalScan {
 public:
  virtual ~LocalScan() = default;
  explicit LocalScan(const ShardSizes& sizes) : sizes_(sizes) {}
  LocalScan(const LocalScan&) = delete;
  LocalScan& operator=(const LocalScan&) = delete;
  LocalScan(LocalScan&&) = delete;
  LocalScan& operator=(LocalScan&&) = delete;

  const ShardSizes& sizes() const { return sizes_; }
  /// Of the problem; null where it has none.
  virtual const float* initial_state() const = 0;
  virtual float* last_state() const = 0;

  /// Runs the steps of a range, a multiple of kShardSteps from the first, from the state `entering` (null:
  /// zeros), and writes the state after them. The outputs of these steps are written too, unless `outputs` is
  /// false.
  virtual void run(IndexRange range, const float* entering, float* leaving, bool outputs, void* stream) = 0;
  /// Two passes over the whole shard with an exchange between them. The first one gives the state after it;
  /// null: nobody asks. What else it computes the second one may use, which writes outputs and the state.
  virtual void run_first(const float* entering, float* leaving, void* stream) {
    if (leaving != nullptr) run({0, sizes_.steps}, entering, leaving, false, stream);
  }
  virtual void run_second(const float* entering, float* leaving, void* stream) {
    run({0, sizes_.steps}, entering, leaving, true, stream);
  }
  /// Begins the summary, beside what is enqueued after that; it is there for what is enqueued after
  /// end_summary(). Without `decays` what it has of them stays as it is: nobody reads it.
  virtual void begin_summary(float* summary, bool decays, void* stream) = 0;
  virtual void end_summary(void* /*stream*/) {}
  /// The state that enters the shard of `rank`, 1 or more. payloads has for each rank the state that leaves
  /// its shard when zeros enter (rank 0: initial_state), and its summary.
  virtual void enter(Payloads payloads, int rank, float* state, void* stream) = 0;
  /// Whether a state may end at the border of a shard.
  virtual bool states_may_end() const { return false; }
  /// Where the state that enters is: in `room`, unless it is what the first shard left as it left it.
  const float* entered(Payloads payloads, int rank, float* room, void* stream) {
    if (rank == 1 && !states_may_end()) return payloads.of(0);
    enter(payloads, rank, room, stream);
    return room;
  }
  /// The gradient of the state that leaves the shard of `rank`, one before the last. payloads + `carries` has
  /// for each rank the gradient of the state that enters its shard, when that of the state that leaves it is
  /// zeros (the last rank: what the problem has).
  virtual void enter_from_after(Payloads payloads, std::int64_t carries, int rank, int ranks, float* gradient,
                                void* stream) = 0;
  virtual void reset(RerunProgress* progress, void* stream) = 0;
  /// Counts a range that has been run again; done where the states are equal bit for bit.
  virtual void compare(const float* state, const float* kept, RerunProgress* progress, void* stream) = 0;
  /// Waits for what is enqueued.
  virtual bool is_done(const RerunProgress* progress, void* stream) const = 0;
  /// Zeros where `from` is null.
  virtual void copy_state(const float* from, float* to, void* stream) = 0;
  /// What it is once all that was enqueued is done.
  virtual RerunProgress settled(const RerunProgress* progress) const = 0;

 private:
  ShardSizes sizes_;
};

/// A scan in host memory, whose calls return when they are done.
class HostScan : public LocalScan {
 public:
  using LocalScan::LocalScan;
  void reset(RerunProgress* progress, void* /*stream*/) override { *progress = {}; }
  void compare(const float* state, const float* kept, RerunProgress* progress, void* stream) override;
  bool is_done(const RerunProgress* progress, void* /*stream*/) const override { return progress->done != 0; }
  void copy_state(const float* from, float* to, void* stream) override;
  RerunProgress settled(const RerunProgress* progress) const override { return *progress; }
};

}  // namespace ssmbench
