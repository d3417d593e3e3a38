#include "sweep/prepared_run.h"

namespace ssmbench {

namespace {

constexpr unsigned char kNaN = 0xFF;

}  // namespace

DeviceInputs::DeviceInputs(Device& device, const std::vector<HostTensor>& inputs) : guard_(device) {
  for (const auto& input : inputs) {
    TensorView view = input.view();
    const std::size_t bytes = input.spec.bytes();
    if (!device.shares_host_memory()) {
      buffers_.push_back(device.allocate(bytes));
      view.data = buffers_.back().get();
      device.copy_in(view.data, input.buffer.data(), bytes);
    }
    guard_.add_bands(input.spec.name, view.data, bytes);
    guard_.add_contents(input.spec.name, view.data, bytes);
    views_.add(input.spec.name, view);
  }
  guard_.arm();
}

PreparedRun::PreparedRun(Device& device, const Implementation& implementation, const Problem& problem,
                         const TensorSet& device_inputs)
    : device_(device), workspace_bytes_(implementation.workspace_bytes(problem)), guard_(device) {
  TensorSet all = device_inputs;
  for (const auto& spec : problem.tensors()) {
    if (spec.role != Role::output) continue;
    const TensorView* input = device_inputs.find(spec.name);
    outputs_.push_back({spec, device.allocate(spec.bytes()), input == nullptr ? nullptr : input->data});
    void* const data = outputs_.back().buffer.get();
    all.add(spec.name, TensorView(data, spec));
    guard_.add_bands(spec.name, data, spec.bytes());
  }
  workspace_ = device.allocate(workspace_bytes_);
  guard_.add_bands("the workspace", workspace_.get(), workspace_bytes_);
  reset_outputs();
  fill_workspace(kNaN);
  guard_.arm();
  launch_ = implementation.bind(problem, all, workspace_.get());
}

void PreparedRun::reset_outputs() {
  for (const auto& output : outputs_) {
    if (output.initial != nullptr)
      device_.copy(output.buffer.get(), output.initial, output.spec.bytes());
    else
      device_.fill(output.buffer.get(), kNaN, output.spec.bytes());
  }
}

void PreparedRun::fill_workspace(unsigned char garbage) {
  device_.fill(workspace_.get(), garbage, workspace_bytes_);
}

std::vector<HostTensor> PreparedRun::copy_outputs() const {
  std::vector<HostTensor> host;
  for (const auto& output : outputs_) {
    host.emplace_back(output.spec);
    device_.copy_out(host.back().buffer.data(), output.buffer.get(), output.spec.bytes());
  }
  return host;
}

void PreparedRun::visit_outputs(
    const std::function<void(const TensorSpec&, const TensorView&)>& visit) const {
  for (const auto& output : outputs_) {
    if (device_.shares_host_memory()) {
      visit(output.spec, {output.buffer.get(), output.spec});
      continue;
    }
    const HostTensor host(output.spec);
    device_.copy_out(host.buffer.data(), output.buffer.get(), output.spec.bytes());
    visit(output.spec, host.view());
  }
}

std::vector<MemorySpan> PreparedRun::output_memory() const {
  std::vector<MemorySpan> memory;
  for (const auto& output : outputs_) memory.push_back({output.buffer.get(), output.spec.bytes()});
  return memory;
}

std::vector<HostTensor> run_once(Device& device, const Implementation& implementation, const Problem& problem,
                                 const std::vector<HostTensor>& inputs) {
  const DeviceInputs device_inputs(device, inputs);
  const PreparedRun run(device, implementation, problem, device_inputs.views());
  run.launch()(device.stream());
  device.synchronize();
  Damage damage = run.damage();
  damage.add(device_inputs.damage());
  if (damage.found()) throw DamageError(std::move(damage));
  return run.copy_outputs();
}

}  // namespace ssmbench
