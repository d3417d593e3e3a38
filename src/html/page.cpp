#include "html/page.h"

#include <array>
#include <string_view>
#include <utility>

namespace ssmbench {

// Embedded at build (CMakeLists.txt).
extern const char* const report_page_text;
extern const char* const report_style_text;
extern const char* const report_script_text;
extern const char* const chart_library_text;

std::string report_page(const std::vector<NamedResults>& files) {
  const std::string data = page_data(files);
  const std::array<std::pair<std::string_view, std::string_view>, 4> parts{{
      {"<!--style-->", report_style_text},
      {"<!--chart library-->", chart_library_text},
      {"<!--data-->", data},
      {"<!--script-->", report_script_text},
  }};
  std::string page;
  std::string_view rest = report_page_text;
  for (const auto& [place, text] : parts) {  // in the order in which the page has them
    const std::size_t at = rest.find(place);
    page.append(rest.substr(0, at)).append(text);
    rest.remove_prefix(at + place.size());
  }
  return page.append(rest);
}

}  // namespace ssmbench
