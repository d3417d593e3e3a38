#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <random>
#include <vector>

#include "bench/timer.h"
#include "sweep/exchange.h"
#include "sweep/prepared_run.h"

namespace ssmbench {

/// Sees to it that what is timed is what is verified. Each launch finds other inputs at the same addresses:
/// two channels have changed places (Exchange), or two sequences of the batch where no group has two
/// channels; over a burst two sequences have, too. It finds garbage over a part of outputs and workspace, and
/// over the rest what a launch with other inputs left there. Outputs of the last launch of a burst are handed
/// to `judge`, put back into the places that they have without the exchanges. Where nothing can be exchanged,
/// every other launch, drawn at random, finds inputs of another seed.
///
/// Inputs are as they were after each burst, and once this is gone.
class Disturbance : public LaunchWatch {
 public:
  /// All outputs, in the problem's order, as the launch left them when it returned.
  using Judge = std::function<void(const std::vector<HostTensor>&, bool of_other_seed)>;

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
  void after_launch() override;
  void end_burst() override;

 private:
  using Clock = std::chrono::steady_clock;

  void exchange_inputs(const Exchange& exchange);
  void undo(std::optional<Exchange>& exchange);
  /// What the inputs hold and what those of the other seed hold change places.
  void change_seed();
  /// Whether what was spent on judging so far is little beside the bursts. Nobody can foresee it.
  bool can_afford_to_judge();

  Device& device_;
  const DeviceInputs& inputs_;
  const DeviceInputs* other_seed_;
  PreparedRun& run_;
  std::vector<HostTensor>& outputs_;
  Judge judge_;
  std::vector<TensorSpec> input_specs_;
  ExchangeDraw draw_;
  std::mt19937_64 random_{std::random_device()()};
  std::optional<Exchange> of_launch_, of_burst_;  ///< in force
  bool is_other_seed_ = false;                    ///< in force
  Clock::time_point burst_start_ = {};
  double burst_seconds_ = 0, judging_seconds_ = 0;
  std::array<bool, 2> has_judged_ = {};  ///< by whether they were of the other seed
};

}  // namespace ssmbench
