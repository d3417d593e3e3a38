// cuda-fused, the fast kernel with complex states: a file of its own, as those of the io dtypes are.

#include "kernels/selective_scan/fused/kernel.cuh"

namespace ssmbench::fused {

Kernel complex_kernel_for(MethodId method, bool along_time) {
  return with_family(method, [&]<Family family>(std::integral_constant<Family, family>) -> Kernel {
    return along_time ? scan_kernel<float, family, ComplexThreadMap, true, Pass::outputs>
                      : scan_kernel<float, family, ComplexThreadMap, false, Pass::outputs>;
  });
}

}  // namespace ssmbench::fused
