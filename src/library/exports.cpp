// libssmbench_kernels.so: every built-in implementation behind the interface of plugins/ssmbench_plugin.h, for
// ssmbench itself and for any other program that speaks it. Their names have the prefix "lib-" here, so that
// they can run beside those that a program has built in. Beyond what that interface asks for, several threads
// may be in its functions at once, each with a handle of its own.

#include <array>
#include <deque>
#include <exception>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "model/implementation.h"
#include "model/operation.h"
#include "model/problem.h"
#include "plugins/ssmbench_plugin.h"

namespace ssmbench {
namespace {

constexpr const char* kPrefix = "lib-";

/// The latest text that a function returned in this thread.
std::string& latest_text() {
  thread_local std::string text;
  return text;
}

const char* tell(std::string text) {
  latest_text() = std::move(text);
  return latest_text().c_str();
}

std::int32_t code_of(Math math) {
  switch (math) {
    case Math::f32:
      return SSMBENCH_MATH_F32;
    case Math::f64:
      return SSMBENCH_MATH_F64;
    case Math::tf32:
      return SSMBENCH_MATH_TF32;
    case Math::f16:
      return SSMBENCH_MATH_F16;
    case Math::bf16:
      return SSMBENCH_MATH_BF16;
  }
  return -1;
}

/// In the order of SSMBENCH_F32, … and of DType both.
static_assert(static_cast<int>(DType::f32) == SSMBENCH_F32 &&
              static_cast<int>(DType::bf16) == SSMBENCH_BF16 &&
              static_cast<int>(DType::c64) == SSMBENCH_C64 && static_cast<int>(DType::i32) == SSMBENCH_I32 &&
              static_cast<int>(DType::e4m3) == SSMBENCH_E4M3);

const ssmbench_plugin& description() {
  static std::deque<std::string> names;
  static std::vector<ssmbench_implementation> described;
  for (const auto& implementation : implementations()) {
    ssmbench_implementation entry{};
    entry.name = names.emplace_back(kPrefix + implementation.name).c_str();
    entry.op = implementation.op.c_str();
    entry.summary = implementation.summary.c_str();
    entry.device = implementation.device == DeviceKind::cpu ? SSMBENCH_CPU : SSMBENCH_CUDA;
    entry.deterministic = implementation.deterministic ? 1 : 0;
    constexpr std::array kIoDTypes{DType::f32, DType::f16, DType::bf16};
    for (std::size_t io = 0; io < kIoDTypes.size(); ++io) {
      const Arithmetic claim = implementation.arithmetic(kIoDTypes[io]);
      entry.math[io] = code_of(claim.math);
      entry.state_dtype[io] = static_cast<std::int32_t>(claim.state_dtype);
    }
    described.push_back(entry);
  }
  static const ssmbench_plugin plugin{SSMBENCH_PLUGIN_ABI_VERSION,
                                      static_cast<std::int32_t>(described.size()), described.data(), 0};
  return plugin;
}

const Implementation& implementation_at(std::int32_t index) {
  return implementations().at(static_cast<std::size_t>(index));
}

/// Throws ContractError where the attributes make no problem of the operation.
Problem problem_of(const Implementation& implementation, const ssmbench_problem& given) {
  const OpSpec& op = *find_op(implementation.op);
  Axes axes;
  for (const auto& axis : op.axes) {
    const ssmbench_attribute* attribute = ssmbench_attribute_of(&given, axis.name.c_str());
    if (attribute == nullptr) continue;
    if (axis.kind == AxisKind::size)
      axes[axis.name] = attribute->integer;
    else if (axis.kind == AxisKind::flag)
      axes[axis.name] = attribute->integer != 0;
    else
      axes[axis.name] = std::string(attribute->text);
  }
  return {op, axes};
}

/// `nowhere`: the address of tensors that have none.
TensorSet tensors_of(const ssmbench_problem& given, void* nowhere = nullptr) {
  TensorSet tensors;
  for (std::int32_t i = 0; i < given.tensor_count; ++i) {
    const ssmbench_tensor& tensor = given.tensors[i];
    TensorView view;
    view.data = tensor.data != nullptr ? tensor.data : nowhere;
    view.dtype = static_cast<DType>(tensor.dtype);
    view.shape.assign(tensor.shape, tensor.shape + tensor.rank);
    view.strides.assign(tensor.strides, tensor.strides + tensor.rank);
    tensors.add(tensor.name, std::move(view));
  }
  return tensors;
}

/// Exceptions end here: they become the text that is returned.
template <class Work>
const char* told_by(const Work& work) {
  try {
    work();
    return nullptr;
  } catch (const std::bad_alloc&) {
    return "out of host memory";
  } catch (const std::exception& error) {
    return tell(error.what());
  }
}

}  // namespace
}  // namespace ssmbench

SSMBENCH_EXPORT const ssmbench_plugin* ssmbench_plugin_describe() {
  static const ssmbench_plugin& plugin = ssmbench::description();
  return &plugin;
}

/// Tensors of another shape, dtype or layout than the attributes say are a reason, too.
SSMBENCH_EXPORT const char* ssmbench_plugin_unsupported(int32_t index, const ssmbench_problem* problem) {
  std::optional<std::string> reason;
  const char* wrong = ssmbench::told_by([&] {
    const auto& implementation = ssmbench::implementation_at(index);
    const auto asked = ssmbench::problem_of(implementation, *problem);
    reason = implementation.unsupported(asked);
    char nowhere = 0;  // tensors have no memory yet
    if (!reason) ssmbench::check_contract(asked, ssmbench::tensors_of(*problem, &nowhere));
  });
  return wrong != nullptr || !reason ? wrong : ssmbench::tell(*reason);
}

/// Negative where the problem is none.
SSMBENCH_EXPORT int64_t ssmbench_plugin_workspace_bytes(int32_t index, const ssmbench_problem* problem) {
  int64_t bytes = -1;
  ssmbench::told_by([&] {
    const auto& implementation = ssmbench::implementation_at(index);
    bytes =
        static_cast<int64_t>(implementation.workspace_bytes(ssmbench::problem_of(implementation, *problem)));
  });
  return bytes;
}

SSMBENCH_EXPORT const char* ssmbench_plugin_bind(int32_t index, const ssmbench_problem* problem,
                                                 void* workspace, void** handle) {
  return ssmbench::told_by([&] {
    const auto& implementation = ssmbench::implementation_at(index);
    *handle = new ssmbench::Launch(implementation.bind(ssmbench::problem_of(implementation, *problem),
                                                       ssmbench::tensors_of(*problem), workspace));
  });
}

SSMBENCH_EXPORT const char* ssmbench_plugin_launch(void* handle, void* stream) {
  return ssmbench::told_by([&] { (*static_cast<const ssmbench::Launch*>(handle))(stream); });
}

SSMBENCH_EXPORT void ssmbench_plugin_release(void* handle) {
  delete static_cast<ssmbench::Launch*>(handle);
}
