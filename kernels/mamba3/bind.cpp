#include "kernels/mamba3/bind.h"

#include <string>

#include "kernels/common/tensor_data.h"

namespace ssmbench {

Mamba3Args bind_mamba3(const Problem& problem, const TensorSet& tensors) {
  check_contract(problem, tensors);
  const Mamba3 scan(problem);
  const auto of_state = [&]<class T>(T*, const char* prefix, const char* name) {
    return data_of<T>(tensors, ((scan.is_step ? "" : prefix) + std::string(name)).c_str());
  };
  const float* f32 = nullptr;
  float* written = nullptr;
  void* any = nullptr;
  return {.scan = scan,
          .Q = data_of<const void>(tensors, "Q"),
          .K = data_of<const void>(tensors, "K"),
          .V = data_of<const void>(tensors, "V"),
          .adt = data_of<const float>(tensors, "ADT"),
          .dt = data_of<const float>(tensors, "DT"),
          .trap = data_of<const void>(tensors, "Trap"),
          .rates = data_of<const void>(tensors, "Angles"),
          .Q_bias = data_of<const float>(tensors, "Q_bias"),
          .K_bias = data_of<const float>(tensors, "K_bias"),
          .mimo_v = data_of<const float>(tensors, "MIMO_V"),
          .mimo_z = data_of<const float>(tensors, "MIMO_Z"),
          .mimo_out = data_of<const float>(tensors, "MIMO_Out"),
          .D = data_of<const float>(tensors, "D"),
          .Z = data_of<const void>(tensors, "Z"),
          .norm = data_of<const float>(tensors, "outproj_norm_weight"),
          .cu_seqlens = data_of<const std::int32_t>(tensors, "cu_seqlens"),
          .input_angle = of_state(f32, "Input_", "Angle_State"),
          .input_ssm = of_state(f32, "Input_", "SSM_State"),
          .input_k = of_state(f32, "Input_", "K_State"),
          .input_v = of_state(f32, "Input_", "V_State"),
          .out = data_of<void>(tensors, "out"),
          .final_angle = of_state(written, "Final_", "Angle_State"),
          .final_ssm = of_state(written, "Final_", "SSM_State"),
          .final_k = of_state(written, "Final_", "K_State"),
          .final_v = of_state(any, "Final_", "V_State")};
}

Mamba3BwdArgs bind_mamba3_bwd(const Problem& problem, const TensorSet& tensors) {
  return {.in = bind_mamba3(problem, tensors),
          .dout = data_of<const void>(tensors, "dout"),
          .dfinal_angle = data_of<const float>(tensors, "dFinal_Angle_State"),
          .dfinal_ssm = data_of<const float>(tensors, "dFinal_SSM_State"),
          .dfinal_k = data_of<const float>(tensors, "dFinal_K_State"),
          .dfinal_v = data_of<const void>(tensors, "dFinal_V_State"),
          .dQ = data_of<void>(tensors, "dQ"),
          .dK = data_of<void>(tensors, "dK"),
          .dV = data_of<void>(tensors, "dV"),
          .dadt = data_of<float>(tensors, "dADT"),
          .ddt = data_of<float>(tensors, "dDT"),
          .dtrap = data_of<void>(tensors, "dTrap"),
          .drates = data_of<void>(tensors, "dAngles"),
          .dQ_bias = data_of<float>(tensors, "dQ_bias"),
          .dK_bias = data_of<float>(tensors, "dK_bias"),
          .dmimo_v = data_of<float>(tensors, "dMIMO_V"),
          .dmimo_z = data_of<float>(tensors, "dMIMO_Z"),
          .dmimo_out = data_of<float>(tensors, "dMIMO_Out"),
          .dD = data_of<float>(tensors, "dD"),
          .dZ = data_of<void>(tensors, "dZ"),
          .dnorm = data_of<float>(tensors, "doutproj_norm_weight"),
          .dinput_angle = data_of<float>(tensors, "dInput_Angle_State"),
          .dinput_ssm = data_of<float>(tensors, "dInput_SSM_State"),
          .dinput_k = data_of<float>(tensors, "dInput_K_State"),
          .dinput_v = data_of<float>(tensors, "dInput_V_State")};
}

}  // namespace ssmbench
