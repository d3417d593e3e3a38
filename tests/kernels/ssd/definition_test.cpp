// Every CUDA implementation of ssd_chunk_scan_fwd against the definition, written down once more.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "catch.h"
#include "device/device.h"
#include "model/implementation.h"
#include "model/ssd.h"

using namespace ssmbench;

namespace {

using Axes = std::map<std::string, AxisValue>;
using Values = std::map<std::string, std::vector<double>>;

std::vector<HostTensor> random_inputs(const Problem& problem) {
  std::mt19937 bits(7);
  std::normal_distribution<double> normal;
  std::vector<double> pool(65537);
  for (auto& value : pool) value = normal(bits);
  std::vector<HostTensor> inputs;
  for (const auto& spec : problem.tensors()) {
    if (spec.role != Role::input) continue;
    HostTensor& tensor = inputs.emplace_back(spec);
    const std::int64_t count = element_count(spec.shape);
    if (spec.name == "seq_idx") {
      auto* index = static_cast<std::int32_t*>(tensor.buffer.data());
      const std::int64_t length = spec.shape[1];
      for (std::int64_t i = 0; i < count; ++i)
        index[i] =
            i % length == 0 ? 0 : index[i - 1] + (bits() % 40 == 0 ? 1 + static_cast<int>(bits() % 2) : 0);
      continue;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      double value =
          pool[static_cast<std::size_t>(i + 1000 * static_cast<std::int64_t>(inputs.size())) % pool.size()];
      if (spec.name == "A") value = -std::exp(value);
      if (spec.name == "dt") value = value * 0.5 - 1;
      if (spec.name == "dt_bias") value = value - 2;
      store_from_double(tensor.buffer.data(), i, spec.dtype, value);
    }
  }
  return inputs;
}

Values define(const Problem& problem, const std::vector<HostTensor>& inputs) {
  const SsdChunkScan scan(problem);
  const TensorSet tensors = views_of(inputs);
  const auto get = [&](const char* name, std::int64_t i) {
    const TensorView& view = tensors.at(name);
    return load_as_double(view.data, i, view.dtype);
  };
  const auto L = scan.seqlen, H = scan.nheads, P = scan.headdim, N = scan.dstate, G = scan.groups;
  Values result;
  auto& out = result["out"];
  auto& final_states = result["final_states"];
  out.resize(static_cast<std::size_t>(scan.batch * L * H * P));
  final_states.resize(static_cast<std::size_t>(scan.batch * H * P * N));
#pragma omp parallel for collapse(2)
  for (std::int64_t b = 0; b < scan.batch; ++b)
    for (std::int64_t h = 0; h < H; ++h) {
      std::vector<double> state(static_cast<std::size_t>(P * N));
      if (scan.has_initial_states)
        for (std::int64_t i = 0; i < P * N; ++i) state[i] = get("initial_states", (b * H + h) * P * N + i);
      int sequence = 0;
      for (std::int64_t t = 0; t < L; ++t) {
        double delta = get("dt", (b * L + t) * H + h);
        if (scan.has_dt_bias) delta += get("dt_bias", h);
        if (scan.dt_softplus) delta = std::log1p(std::exp(delta));
        delta = std::min(std::max(delta, scan.dt_low), scan.dt_high);
        double decay = std::exp(delta * get("A", h));
        if (scan.has_seq_idx) {
          const int now = static_cast<const std::int32_t*>(tensors.at("seq_idx").data)[b * L + t];
          if (now != sequence) decay = 0;
          sequence = now;
        }
        const std::int64_t bc = ((b * L + t) * G + h / scan.heads_per_group()) * N;
        for (std::int64_t p = 0; p < P; ++p) {
          const std::int64_t at = ((b * L + t) * H + h) * P + p;
          const double x = get("x", at);
          double y = 0;
          for (std::int64_t n = 0; n < N; ++n) {
            double& s = state[p * N + n];
            s = decay * s + delta * x * get("B", bc + n);
            y += s * get("C", bc + n);
          }
          if (scan.skip == SsdSkip::head) y += get("D", h) * x;
          if (scan.skip == SsdSkip::headdim) y += get("D", h * P + p) * x;
          if (scan.has_z) y *= get("z", at) / (1 + std::exp(-get("z", at)));
          out[at] = y;
        }
      }
      std::copy(state.begin(), state.end(), final_states.begin() + (b * H + h) * P * N);
    }
  return result;
}

/// Runs it once on the GPU and returns the outputs.
std::vector<HostTensor> run_once(Device& device, const Implementation& implementation, const Problem& problem,
                                 const std::vector<HostTensor>& inputs) {
  std::vector<Device::Buffer> buffers;
  TensorSet tensors;
  const auto place = [&](const TensorSpec& spec) {
    buffers.push_back(device.allocate(spec.bytes()));
    tensors.add(spec.name, TensorView(buffers.back().get(), spec));
    return buffers.back().get();
  };
  for (const auto& input : inputs) device.copy_in(place(input.spec), input.buffer.data(), input.spec.bytes());
  for (const auto& spec : problem.tensors())
    if (spec.role == Role::output) device.fill(place(spec), 0xFF, spec.bytes());
  const std::size_t workspace_bytes = implementation.workspace_bytes(problem);
  const Device::Buffer workspace = device.allocate(workspace_bytes);
  device.fill(workspace.get(), 0xFF, workspace_bytes);
  implementation.bind(problem, tensors, workspace.get())(device.stream());
  device.synchronize();
  std::vector<HostTensor> outputs;
  for (const auto& spec : problem.tensors())
    if (spec.role == Role::output) {
      outputs.emplace_back(spec);
      device.copy_out(outputs.back().buffer.data(), tensors.at(spec.name).data, spec.bytes());
    }
  return outputs;
}

std::vector<Problem> problems() {
  std::vector<Problem> all;
  const Axes base{{"batch", std::int64_t{2}},    {"seqlen", std::int64_t{130}}, {"nheads", std::int64_t{4}},
                  {"headdim", std::int64_t{64}}, {"dstate", std::int64_t{64}},  {"final_states", true}};
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    const auto add = [&](Axes axes) {
      axes.merge(Axes(base));
      axes.emplace("dtype", dtype);
      all.emplace_back(ssd_chunk_scan_fwd(), axes);
    };
    for (const std::int64_t L : {1, 16, 63, 64, 65, 257, 1500}) add({{"seqlen", L}});
    for (const std::int64_t P : {1, 16, 33, 64, 128, 256})
      for (const std::int64_t N : {1, 16, 33, 64, 128, 256}) add({{"headdim", P}, {"dstate", N}});
    for (const std::int64_t G : {2, 4})
      for (const std::int64_t L : {63, 700})
        add({{"groups", G}, {"seqlen", L}, {"seq_idx", true}, {"initial_states", true}, {"D", "headdim"}});
    for (int bits = 0; bits < 32; ++bits)
      add({{"z", (bits & 1) != 0},
           {"D", (bits & 2) ? "headdim" : "none"},
           {"dt_bias", (bits & 4) != 0},
           {"dt_softplus", true},
           {"initial_states", (bits & 8) != 0},
           {"seq_idx", (bits & 16) != 0},
           {"dt_limit", bits & 1 ? "0.1..0.3" : "0..inf"},
           {"dstate", std::int64_t{32}}});
    // Many blocks: time is not cut.
    add({{"batch", std::int64_t{4}},
         {"nheads", std::int64_t{40}},
         {"seqlen", std::int64_t{700}},
         {"headdim", std::int64_t{16}},
         {"dstate", std::int64_t{16}},
         {"seq_idx", true}});
  }
  return all;
}

}  // namespace

TEST_CASE("CUDA implementations of ssd_chunk_scan_fwd agree with its definition", "[gpu][ssd_definition]") {
  for (const auto& info : list_devices()) {
    if (info.kind != DeviceKind::cuda) continue;
    const auto device = open_device(info.kind, info.index);
    std::map<std::string, double> worst;
    for (const auto& problem : problems()) {
      const auto inputs = random_inputs(problem);
      const Values expected = define(problem, inputs);
      for (const auto& implementation : implementations()) {
        if (implementation.op != "ssd_chunk_scan_fwd" || implementation.device != DeviceKind::cuda) continue;
        if (implementation.unsupported(problem)) continue;
        for (const auto& output : run_once(*device, implementation, problem, inputs)) {
          const auto& values = expected.at(output.spec.name);
          double norm = 0, error = 0, largest = 0;
          std::size_t bad = 0;
          for (std::size_t i = 0; i < values.size(); ++i) {
            const double e =
                load_as_double(output.buffer.data(), static_cast<std::int64_t>(i), output.spec.dtype) -
                values[i];
            norm += values[i] * values[i];
            error += e * e;
            if (!(std::abs(e) <= largest)) largest = std::abs(e), bad = i;
          }
          const double rel = std::sqrt(error / std::max(norm, 1e-30));
          const double limit = problem.dtype() == DType::bf16 ? 6e-3
                               : implementation.name == "cuda-chunked" || problem.dtype() == DType::f16
                                   ? 1e-3
                                   : 1e-6;
          const std::string key =
              fmt::format("{} {} {}", implementation.name, name_of(problem.dtype()), output.spec.name);
          worst[key] = std::max(worst[key], std::isfinite(rel) ? rel : 1e9);
          if (!(rel <= limit)) {
            fmt::print("BAD {} {} {}: rel {:.3g}, worst {:.3g} at {} expected {:.6g}\n", implementation.name,
                       problem.id(), output.spec.name, rel, largest, bad, values[bad]);
            CHECK(rel <= limit);
          }
        }
      }
    }
    for (const auto& [key, value] : worst) fmt::print("{}: {:.3g}\n", key, value);
  }
}

TEST_CASE("time", "[gpu][ssd_time]") {
  for (const auto& info : list_devices()) {
    if (info.kind != DeviceKind::cuda) continue;
    const auto device = open_device(info.kind, info.index);
    for (const char* dtype : {"bf16", "f16", "f32"})
      for (const std::int64_t batch : {8, 1}) {
        const Problem problem(ssd_chunk_scan_fwd(), Axes{{"batch", batch},
                                                         {"seqlen", std::int64_t{4096}},
                                                         {"nheads", std::int64_t{32}},
                                                         {"headdim", std::int64_t{64}},
                                                         {"dstate", std::int64_t{128}},
                                                         {"dtype", dtype}});
        const auto inputs = random_inputs(problem);
        for (const auto& implementation : implementations()) {
          if (implementation.op != "ssd_chunk_scan_fwd" || implementation.device != DeviceKind::cuda)
            continue;
          if (implementation.unsupported(problem)) continue;
          std::vector<Device::Buffer> buffers;
          TensorSet tensors;
          for (const auto& spec : problem.tensors()) {
            buffers.push_back(device->allocate(spec.bytes()));
            tensors.add(spec.name, TensorView(buffers.back().get(), spec));
          }
          for (const auto& input : inputs)
            device->copy_in(tensors.at(input.spec.name).data, input.buffer.data(), input.spec.bytes());
          const Device::Buffer workspace = device->allocate(implementation.workspace_bytes(problem));
          const auto launch = implementation.bind(problem, tensors, workspace.get());
          std::vector<double> times;
          for (int i = 0; i < 15; ++i) times.push_back(device->time_ms(launch));
          std::sort(times.begin(), times.end());
          fmt::print("TIME {} {} B={}: {:.4f} ms (min {:.4f})\n", implementation.name, dtype, batch, times[7],
                     times[0]);
        }
      }
  }
}
