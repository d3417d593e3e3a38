#include "sweep/prepared_run.h"

#include <algorithm>

namespace ssmbench {

namespace {

constexpr unsigned char kNaN = 0xFF;

/// How much garbage is written before a timed launch, and the most of a buffer (1 over this) that it takes.
constexpr std::size_t kStretchBytes = std::size_t{1} << 16;
constexpr std::size_t kShareOfBuffer = 16;

}  // namespace

unsigned char garbage_byte(std::mt19937_64& random, unsigned char before) {
  // 0x5A5A is 203 in f16, 0x7B7B 61280, and NaN from 0x7C7C on; in f32 they are 1.5e16 to 8.5e37.
  std::uniform_int_distribution<int> magnitude(0x5A, 0x7E);
  std::uniform_int_distribution<int> sign(0, 1);
  unsigned char garbage = before;
  while (garbage == before) garbage = static_cast<unsigned char>(magnitude(random) + 0x80 * sign(random));
  return garbage;
}

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
  reset_outputs(kNaN);
  fill_workspace(kNaN);
  guard_.arm();  // after all of that is done, on whatever stream binding works
  run_ = device.bind(implementation, problem, all, workspace_.get());
  reset_outputs(kNaN);  // binding may have run the kernel, to tune it
  fill_workspace(kNaN);
}

Damage PreparedRun::damage() const {
  Damage damage = guard_.damage();
  if (run_.team != nullptr) damage.add(run_.team->damage());
  return damage;
}

void PreparedRun::reset_outputs(unsigned char garbage) {
  for (const auto& output : outputs_) {
    if (output.initial != nullptr)
      device_.copy(output.buffer.get(), output.initial, output.spec.bytes());
    else
      device_.fill(output.buffer.get(), garbage, output.spec.bytes());
  }
}

void PreparedRun::fill_workspace(unsigned char garbage) {
  device_.fill(workspace_.get(), garbage, workspace_bytes_);
}

void PreparedRun::scatter_garbage(std::mt19937_64& random) {
  const auto scatter = [&](void* data, std::size_t bytes) {
    const std::size_t length = std::min((bytes + kShareOfBuffer - 1) / kShareOfBuffer, kStretchBytes);
    const auto begin = std::uniform_int_distribution<std::size_t>(0, bytes - length)(random);
    device_.fill(static_cast<std::byte*>(data) + begin, garbage_byte(random), length);
  };
  for (const auto& output : outputs_) {
    if (output.initial != nullptr)
      device_.copy(output.buffer.get(), output.initial, output.spec.bytes());
    else
      scatter(output.buffer.get(), output.spec.bytes());
  }
  scatter(workspace_.get(), workspace_bytes_);
}

std::vector<HostTensor> PreparedRun::copy_outputs() const {
  std::vector<HostTensor> host;
  copy_outputs(host);
  return host;
}

void PreparedRun::copy_outputs(std::vector<HostTensor>& host) const {
  if (host.empty())
    for (const auto& output : outputs_) host.emplace_back(output.spec);
  for (std::size_t i = 0; i < outputs_.size(); ++i)
    device_.copy_out(host[i].buffer.data(), outputs_[i].buffer.get(), outputs_[i].spec.bytes());
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
