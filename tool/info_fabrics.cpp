#include "tool/info_fabrics.hpp"

#include <fmt/format.h>

#include "transport/ofi/providers.hpp"
#include "tutti/config.hpp"

namespace tutti::tool {
namespace {

namespace ofi = transport::ofi;

Json list_of(const std::vector<std::string>& words) {
  Json list = Json::array();
  for (const std::string& word : words) list.push_back(word);
  return list;
}

std::string words_of(const Json& list) {
  std::string text;
  for (const Json& word : list.items()) text += (text.empty() ? "" : " ") + word.string();
  return text;
}

}  // namespace

Json fabric_facts() {
  Json facts = {{"why_none", Json()}, {"providers", Json::array()}, {"chosen", Json()}};
  const auto config = Config::from_environment();
  const auto all = ofi::providers();
  const auto chosen = all.ok() ? ofi::choose_provider(config.ok() ? *config : Config(), *all)
                               : Result<ofi::Provider>(all.status());
  if (!chosen.ok()) {
    facts["why_none"] = chosen.status().message();
  } else {
    facts["chosen"] = Json{{"name", chosen->name}, {"domains", list_of(chosen->domains)}};
  }
  if (!all.ok()) return facts;
  Json providers = Json::array();
  for (const ofi::Provider& each : *all)
    providers.push_back(
        {{"name", each.name}, {"hardware", each.hardware}, {"domains", list_of(each.domains)}});
  facts["providers"] = std::move(providers);
  return facts;
}

std::string fabric_text(const Json& facts) {
  std::string text;
  for (const Json& provider : facts["providers"].items())
    text += fmt::format("  {:16} {}: {}\n", provider["name"].string(),
                        provider["hardware"].boolean() ? "hardware" : "software",
                        words_of(provider["domains"]));
  if (!facts["why_none"].is_null())
    return text + fmt::format("  none: {}\n", facts["why_none"].string());
  const Json& chosen = facts["chosen"];
  return text + fmt::format("  with TUTTI_TRANSPORT=ofi ranks would use {} on {}\n",
                            chosen["name"].string(), words_of(chosen["domains"]));
}

}  // namespace tutti::tool
