#include "schedule/host/form.hpp"

namespace tutti::schedule {

std::string_view to_string(Reach reach) noexcept {
  switch (reach) {
    case Reach::window: return "window";
    case Reach::readable: return "readable";
    case Reach::mapped_source: return "mapped_source";
    case Reach::mapped: return "mapped";
  }
  return "?";
}

std::string_view to_string(HostAction action) noexcept {
  switch (action) {
#define TUTTI_HOST_ACTION(name) \
  case HostAction::name:        \
    return #name;
#include "schedule/host/actions.def"
#undef TUTTI_HOST_ACTION
  }
  return "?";
}

std::string_view to_string(Spot::Where where) noexcept {
  switch (where) {
    case Spot::Where::input: return "input";
    case Spot::Where::output: return "output";
    case Spot::Where::window: return "window";
    case Spot::Where::result: return "result";
  }
  return "?";
}

Spot chunk_spot(Space space, std::uint32_t chunk) {
  return {space == Space::input ? Spot::Where::input : Spot::Where::output, chunk};
}

}  // namespace tutti::schedule
