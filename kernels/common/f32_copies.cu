#include "kernels/common/f32_copies.h"

#include "base/logic_error.h"
#include "kernels/common/index_math.h"
#include "kernels/common/io_types.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/common/workspace.h"

namespace ssmbench::f32_copies {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 2048;
/// More tensors than any operation has of its io dtype.
constexpr int kMostCopies = 24;

struct Copy {
  const void* from;
  void* to;
  std::int64_t elements;
  std::int64_t vectors;  ///< of four elements, of those whose addresses allow it
};

struct Copies {
  Copy all[kMostCopies];
  int count = 0;
  std::int64_t most_elements = 1;

  void add(const void* from, void* to, std::int64_t elements) {
    if (count == kMostCopies) throw_logic_error("more tensors than f32 copies");
    const auto is_aligned = [](const void* address) {
      return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
    };
    all[count++] = {from, to, elements, is_aligned(from) && is_aligned(to) ? elements / 4 : 0};
    most_elements = elements > most_elements ? elements : most_elements;
  }
};

template <class From, class To>
__global__ void __launch_bounds__(kThreads) copy_kernel(const __grid_constant__ Copies copies) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t pitch = std::int64_t{gridDim.x} * kThreads;
  for (int c = 0; c < copies.count; ++c) {
    const Copy& copy = copies.all[c];
    const auto* const from = static_cast<const From*>(copy.from);
    auto* const to = static_cast<To*>(copy.to);
    for (std::int64_t i = first; i < copy.vectors; i += pitch) {
      const Elements4<From> read = reinterpret_cast<const Elements4<From>*>(from)[i];
      Elements4<To> written;
#pragma unroll
      for (int j = 0; j < 4; ++j) written.values[j] = from_float<To>(to_float(read.values[j]));
      reinterpret_cast<Elements4<To>*>(to)[i] = written;
    }
    for (std::int64_t i = 4 * copy.vectors + first; i < copy.elements; i += pitch)
      to[i] = from_float<To>(to_float(from[i]));
  }
}

template <class From, class To>
Launch launch_copies(const Copies& copies) {
  const std::int64_t blocks = ceil_div(copies.most_elements, std::int64_t{4} * kThreads);
  if (copies.count == 0) return [](void*) {};
  return launch_of(copy_kernel<From, To>, blocks < kMostBlocks ? blocks : kMostBlocks, dim3(kThreads), 0,
                   copies);
}

Problem in_f32(const Problem& problem, const std::string& dtype) {
  return problem.with({{dtype, std::string("f32")}});
}

/// Calls call(tensor, the same of the problem in f32) for each tensor that has a copy.
template <class Call>
void for_copies(const Problem& problem, const Problem& f32, const Call& call) {
  const auto specs = problem.tensors();
  const auto copied = f32.tensors();
  for (std::size_t i = 0; i < specs.size(); ++i)
    if (specs[i].dtype != copied.at(i).dtype) call(specs[i], copied[i]);
}

std::size_t copied_bytes(const Problem& problem, const Problem& f32) {
  WorkspaceLayout layout;
  for_copies(problem, f32, [&](const TensorSpec&, const TensorSpec& copied) {
    layout.take(element_count(copied.shape), sizeof(float));
  });
  return layout.bytes();
}

Launch bind(const Implementation& of_f32, const Problem& problem, const Problem& f32,
            const TensorSet& tensors, void* workspace) {
  check_contract(problem, tensors);
  auto* const memory = static_cast<char*>(workspace);
  WorkspaceLayout layout;
  TensorSet copies;
  Copies before{}, after{};
  DType dtype = DType::f32;
  for (const auto& [name, view] : tensors.all()) copies.add(name, view);
  for_copies(problem, f32, [&](const TensorSpec& spec, const TensorSpec& copied) {
    const std::int64_t elements = element_count(copied.shape);
    void* const copy = memory + layout.take(elements, sizeof(float));
    void* const data = tensors.at(spec.name).data;
    copies.add(spec.name, TensorView(copy, copied));
    dtype = spec.dtype;
    if (spec.role == Role::input)
      before.add(data, copy, elements);
    else
      after.add(copy, data, elements);
  });
  if (dtype == DType::f32) return of_f32.bind(problem, tensors, workspace);
  const Launch compute = of_f32.bind(f32, copies, memory + layout.bytes());
  const auto launch = [&]<class Io>(std::type_identity<Io>) -> Launch {
    return
        [=, load = launch_copies<Io, float>(before), store = launch_copies<float, Io>(after)](void* stream) {
          load(stream);
          compute(stream);
          store(stream);
        };
  };
  return dtype == DType::f16 ? launch(std::type_identity<__half>())
                             : launch(std::type_identity<__nv_bfloat16>());
}

}  // namespace
}  // namespace ssmbench::f32_copies

namespace ssmbench {

Implementation with_f32_copies(Implementation of_f32, const std::string& dtype) {
  Implementation all = of_f32;
  all.unsupported = [=](const Problem& problem) {
    return of_f32.unsupported(f32_copies::in_f32(problem, dtype));
  };
  all.workspace_bytes = [=](const Problem& problem) {
    const Problem f32 = f32_copies::in_f32(problem, dtype);
    return f32_copies::copied_bytes(problem, f32) + of_f32.workspace_bytes(f32);
  };
  all.bind = [=](const Problem& problem, const TensorSet& tensors, void* workspace) {
    return f32_copies::bind(of_f32, problem, f32_copies::in_f32(problem, dtype), tensors, workspace);
  };
  return all;
}

}  // namespace ssmbench
