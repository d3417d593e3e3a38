#pragma once

#include <string>
#include <vector>

#include "html/page_data.h"

namespace ssmbench {

/// One HTML document that holds all it needs: style, scripts, chart library and the results. The browser is
/// told to load nothing else (Content-Security-Policy).
std::string report_page(const std::vector<NamedResults>& files);

}  // namespace ssmbench
