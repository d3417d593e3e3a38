#include "reference/mamba3/gradient_sums.h"

namespace ssmbench::mamba3_gradients {

void store_head_sums(const Mamba3& scan, const std::vector<HeadSums>& heads, ReferenceOutputs& outputs) {
  const std::int64_t steps = scan.batch * scan.seqlen;
  const auto store_sums = [&](const char* name, std::vector<TimeSum> HeadSums::*member) {
    const auto found = outputs.find(name);
    if (found == outputs.end()) return;
    for (std::int64_t h = 0; h < scan.nheads; ++h) {
      std::vector<TimeSum> all = (heads[h].*member);
      for (std::int64_t m = 1; m < scan.sequences; ++m)
        for (std::size_t i = 0; i < all.size(); ++i) all[i].add((heads[m * scan.nheads + h].*member)[i]);
      for (std::size_t i = 0; i < all.size(); ++i)
        all[i].store_to(found->second, h * std::ssize(all) + static_cast<std::int64_t>(i), steps);
    }
  };
  store_sums("dQ_bias", &HeadSums::dQ_bias);
  store_sums("dK_bias", &HeadSums::dK_bias);
  store_sums("dMIMO_V", &HeadSums::ups);
  store_sums("dMIMO_Z", &HeadSums::gates);
  store_sums("dMIMO_Out", &HeadSums::downs);
  store_sums("doutproj_norm_weight", &HeadSums::norm);
  if (!scan.has_D) return;
  for (std::int64_t h = 0; h < scan.nheads; ++h) {
    TimeSum dD;
    for (std::int64_t m = 0; m < scan.sequences; ++m) dD.add(heads[m * scan.nheads + h].dD);
    dD.store_to(outputs.at("dD"), h, steps * scan.rank * scan.headdim);
  }
}

}  // namespace ssmbench::mamba3_gradients
