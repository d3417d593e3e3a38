#pragma once

#include <vector>

#include "device/device.h"
#include "model/implementation.h"
#include "model/tensor.h"

namespace ssmbench {

/// Tensors of one problem in a device's memory.
class DeviceTensors {
 public:
  explicit DeviceTensors(Device& device) : device_(device) {}

  /// In place where the device reads host memory, else copied.
  void add_input(const HostTensor& tensor);
  /// Filled with NaN (all bits set is one in every floating-point dtype), so that what is never written
  /// shows.
  void add_output(const TensorSpec& spec);
  /// An output that is updated in place: a copy of its own of the input, which others read too.
  void add_updated(const HostTensor& input);

  HostTensor copy_out(const TensorSpec& spec) const;
  const TensorSet& views() const { return views_; }

 private:
  void* allocate(const TensorSpec& spec);

  Device& device_;
  std::vector<Device::Buffer> buffers_;
  TensorSet views_;
};

/// An implementation with the outputs and the workspace of one problem in a device's memory, ready to launch.
class PreparedRun {
 public:
  /// `inputs` lie in host memory, `device_inputs` are the same in the device's. Throws DeviceError,
  /// ContractError.
  PreparedRun(Device& device, const Implementation& implementation, const Problem& problem,
              const std::vector<HostTensor>& inputs, const TensorSet& device_inputs);

  const Launch& launch() const { return launch_; }
  /// All outputs, in the problem's order, after a launch that has been waited for.
  std::vector<HostTensor> copy_outputs() const;

 private:
  std::vector<TensorSpec> specs_;
  DeviceTensors outputs_;
  Device::Buffer workspace_;
  Launch launch_;
};

/// Runs an implementation once, from inputs to outputs in host memory.
std::vector<HostTensor> run_once(Device& device, const Implementation& implementation, const Problem& problem,
                                 const std::vector<HostTensor>& inputs);

}  // namespace ssmbench
