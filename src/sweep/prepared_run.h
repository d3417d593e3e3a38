#pragma once

#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "device/device.h"
#include "device/memory_guard.h"
#include "device/team_run.h"
#include "model/implementation.h"
#include "model/tensor.h"
#include "record/cause.h"

namespace ssmbench {

/// What damage is put down to.
inline Cause cause_of(const Damage& damage) {
  return damage.out_of_bounds ? Cause::guard_band : Cause::inputs_changed;
}

/// The inputs of one case in a device's memory: in place where the device reads host memory, else copied.
/// `inputs` has to live as long.
class DeviceInputs {
 public:
  DeviceInputs(Device& device, const std::vector<HostTensor>& inputs);

  const TensorSet& views() const { return views_; }
  /// What launches that have been waited for did to the inputs or the bands around them (MemoryGuard).
  Damage damage() const { return guard_.damage(); }

 private:
  std::vector<Device::Buffer> buffers_;
  TensorSet views_;
  MemoryGuard guard_;
};

/// A byte to fill memory with that must not be read before it is written: a number of at least 200 in every
/// dtype of outputs, and of 1e16 in f32 and bf16, or NaN in f16. Another one than `before`.
unsigned char garbage_byte(std::mt19937_64& random, unsigned char before = 0);

/// An implementation with the outputs and the workspace of one problem in a device's memory, ready to launch.
class PreparedRun {
 public:
  /// Fills all bytes of outputs and workspace with 0xFF, which is NaN in every floating-point dtype, so that
  /// what is never written shows. Outputs that are updated in place get a copy of their own of the input.
  /// Throws DeviceError, ContractError.
  PreparedRun(Device& device, const Implementation& implementation, const Problem& problem,
              const TensorSet& device_inputs);

  const Launch& launch() const { return run_.launch; }
  /// Null on a device of one rank.
  TeamRun* team() const { return run_.team.get(); }
  /// Enqueues that outputs hold `garbage` (garbage_byte below), those that are updated in place the input.
  void reset_outputs(unsigned char garbage);
  /// Enqueues that all bytes of the workspace become `garbage`.
  void fill_workspace(unsigned char garbage);
  /// Enqueues what there is before each timed launch: outputs that are updated in place hold the input, and
  /// garbage lies over a stretch of each other output and of the workspace, the rest of which the launch
  /// before left. Both are drawn at random. A stretch is short, so that caches do not notice.
  void scatter_garbage(std::mt19937_64& random);

  /// All outputs, in the problem's order, after a launch that has been waited for.
  std::vector<HostTensor> copy_outputs() const;
  /// The same into tensors that an earlier call made, or into new ones where there are none.
  void copy_outputs(std::vector<HostTensor>& host) const;
  /// Where the outputs are on the device, in the same order.
  std::vector<MemorySpan> output_memory() const;
  /// Of one of these.
  const std::string& output_name(std::size_t index) const { return outputs_[index].spec.name; }
  /// What launches that have been waited for did to the bands around outputs and workspace (MemoryGuard), and
  /// to the memory of ranks.
  Damage damage() const;

 private:
  struct Output {
    TensorSpec spec;
    Device::Buffer buffer;
    const void* initial;  ///< of an output that is updated in place; else null
  };

  Device& device_;
  std::vector<Output> outputs_;
  std::size_t workspace_bytes_;
  Device::Buffer workspace_;
  BoundRun run_;
  MemoryGuard guard_;
};

/// An implementation wrote to memory that it must not write to.
struct DamageError : DeviceError {
  explicit DamageError(Damage found) : DeviceError(found.text), damage(std::move(found)) {}
  Damage damage;
};

/// Runs an implementation once, from inputs to outputs in host memory. Throws DeviceError, and DamageError.
std::vector<HostTensor> run_once(Device& device, const Implementation& implementation, const Problem& problem,
                                 const std::vector<HostTensor>& inputs);

}  // namespace ssmbench
