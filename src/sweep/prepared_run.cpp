#include "sweep/prepared_run.h"

#include <algorithm>

namespace ssmbench {

namespace {

std::vector<TensorSpec> output_specs(const Problem& problem) {
  auto specs = problem.tensors();
  std::erase_if(specs, [](const TensorSpec& spec) { return spec.role != Role::output; });
  return specs;
}

}  // namespace

void DeviceTensors::add_input(const HostTensor& tensor) {
  if (device_.shares_host_memory())
    views_.add(tensor.spec.name, tensor.view());
  else
    add_updated(tensor);
}

void DeviceTensors::add_output(const TensorSpec& spec) {
  device_.fill(allocate(spec), 0xFF, spec.bytes());
}

void DeviceTensors::add_updated(const HostTensor& input) {
  device_.copy_in(allocate(input.spec), input.buffer.data(), input.spec.bytes());
}

HostTensor DeviceTensors::copy_out(const TensorSpec& spec) const {
  HostTensor host(spec);
  device_.copy_out(host.buffer.data(), views_.at(spec.name).data, spec.bytes());
  return host;
}

void* DeviceTensors::allocate(const TensorSpec& spec) {
  buffers_.push_back(device_.allocate(spec.bytes()));
  views_.add(spec.name, TensorView(buffers_.back().get(), spec));
  return buffers_.back().get();
}

PreparedRun::PreparedRun(Device& device, const Implementation& implementation, const Problem& problem,
                         const std::vector<HostTensor>& inputs, const TensorSet& device_inputs)
    : specs_(output_specs(problem)), outputs_(device) {
  TensorSet all = device_inputs;
  for (const auto& spec : specs_) {
    const auto input =
        std::ranges::find(inputs, spec.name, [](const HostTensor& tensor) { return tensor.spec.name; });
    if (input != inputs.end())
      outputs_.add_updated(*input);
    else
      outputs_.add_output(spec);
    all.add(spec.name, outputs_.views().at(spec.name));
  }
  const std::size_t workspace_bytes = implementation.workspace_bytes(problem);
  workspace_ = device.allocate(workspace_bytes);
  device.fill(workspace_.get(), 0xFF, workspace_bytes);
  launch_ = implementation.bind(problem, all, workspace_.get());
}

std::vector<HostTensor> PreparedRun::copy_outputs() const {
  std::vector<HostTensor> host;
  for (const auto& spec : specs_) host.push_back(outputs_.copy_out(spec));
  return host;
}

std::vector<HostTensor> run_once(Device& device, const Implementation& implementation, const Problem& problem,
                                 const std::vector<HostTensor>& inputs) {
  DeviceTensors uploaded(device);
  for (const auto& input : inputs) uploaded.add_input(input);
  const PreparedRun run(device, implementation, problem, inputs, uploaded.views());
  run.launch()(device.stream());
  device.synchronize();
  return run.copy_outputs();
}

}  // namespace ssmbench
