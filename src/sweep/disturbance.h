#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "bench/timer.h"
#include "device/held_signals.h"
#include "sweep/exchange.h"
#include "sweep/prepared_run.h"
#include "sweep/single_row.h"

namespace ssmbench {

/// A row of a launch: a problem of its own (SingleRow).
struct RowOfLaunch {
  Row row;
  std::vector<HostTensor> inputs;   ///< as the launch found them
  std::vector<HostTensor> outputs;  ///< without those that sum over other rows
};

/// What a timed launch left when it returned.
struct TimedLaunch {
  /// All outputs, in the problem's order, in the places that they have without the exchanges.
  const std::vector<HostTensor>& outputs;
  bool of_other_seed;
  /// Where inputs were shuffled: there is no reference of all outputs then, but of these rows.
  const std::vector<RowOfLaunch>& rows;
};

/// Sees to it that what is timed is what is verified. Each launch finds other inputs at the same addresses:
/// two channels have changed places (Exchange), or two sequences of the batch where no group has two
/// channels; over a burst two sequences have, too. In two launches of three, drawn at random, stretches of
/// inputs have changed places as well, so that nothing that was computed for a channel before is right any
/// more. A launch finds garbage over a part of outputs and workspace, and over
/// the rest what a launch with other inputs left there. Where nothing can be exchanged, every other launch,
/// drawn at random, finds inputs of another seed. The last launch of a burst, which none can know to be, is
/// handed to `judge`.
///
/// Signals are held from the end of a launch until the next one begins, or its outputs are copied. Inputs are
/// as they were after each burst, and once this is gone.
class Disturbance : public LaunchWatch {
 public:
  using Judge = std::function<void(const TimedLaunch&)>;

  /// `other_seed` are inputs of the same problem, needed where nothing can be exchanged, else null; `judge` may
  /// be null. All have to live as long.
  Disturbance(Device& device, const Problem& problem, const DeviceInputs& inputs,
              const DeviceInputs* other_seed, PreparedRun& run, std::vector<HostTensor>& outputs,
              Judge judge);
  ~Disturbance() override;
  Disturbance(const Disturbance&) = delete;
  Disturbance& operator=(const Disturbance&) = delete;
  Disturbance(Disturbance&&) = delete;
  Disturbance& operator=(Disturbance&&) = delete;

  void begin_burst() override;
  void before_launch() override;
  void launch_returned() override;
  void after_launch() override;
  void end_burst() override;

 private:
  using Clock = std::chrono::steady_clock;

  void exchange_inputs(const Exchange& exchange);
  void undo(std::optional<Exchange>& exchange);
  /// What the inputs hold and what those of the other seed hold change places.
  void change_seed();
  void shuffle_inputs();
  bool is_shuffled() const { return !shuffled_.empty(); }
  /// Draws whether to judge a launch, by what that costs beside a burst: a launch cannot tell by those before.
  bool draws_to_judge();
  /// Outputs have what is in force put back.
  void put_back_outputs();
  /// Some rows of the launch, drawn at random.
  std::vector<RowOfLaunch> rows_of_launch();
  /// For launches of the kind of the latest one.
  bool& has_judged_such() { return has_judged_.at((is_other_seed_ ? 1 : 0) + (is_shuffled() ? 2 : 0)); }

  Device& device_;
  const DeviceInputs& inputs_;
  const DeviceInputs* other_seed_;
  PreparedRun& run_;
  std::vector<HostTensor>& outputs_;
  Judge judge_;
  std::vector<TensorSpec> input_specs_;
  ExchangeDraw draw_;
  SingleRow single_row_;
  std::mt19937_64 random_{std::random_device()()};
  std::optional<Exchange> of_launch_, of_burst_;  ///< in force
  std::vector<SlicePair> shuffled_;               ///< in force
  bool is_other_seed_ = false;                    ///< in force
  std::optional<HeldSignals> held_signals_;
  Clock::time_point burst_start_ = {};
  double burst_seconds_ = 0, bursts_ = 0;
  std::vector<double> judging_seconds_;  ///< the latest
  std::size_t judged_ = 0;
  std::array<bool, 4> has_judged_ = {};
};

}  // namespace ssmbench
