#include "tool/info_gpus.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <cstdlib>
#include <vector>

#include "cuda/device.hpp"
#include "tutti/config.hpp"

namespace tutti::tool {
namespace {

std::string uuid_word(const cuda::DeviceFacts& facts) {
  std::string word = "GPU-";
  for (std::size_t i = 0; i < facts.uuid.size(); ++i)
    word += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                        static_cast<unsigned>(facts.uuid[i]));
  return word;
}

Json device_facts(const cuda::DeviceFacts& facts, int count) {
  std::vector<int> reached;
  for (int other = 0; other < count; ++other)
    if (other != facts.ordinal && cuda::may_reach(facts.ordinal, other)) reached.push_back(other);
  return {{"ordinal", facts.ordinal},
          {"name", facts.name},
          {"uuid", uuid_word(facts)},
          {"memory_bytes", facts.memory_bytes},
          {"compute_capability", fmt::format("{}.{}", facts.compute_major, facts.compute_minor)},
          {"multiprocessors", facts.multiprocessors},
          {"stream_memory_operations", facts.memory_operations},
          {"mps", facts.under_mps},
          {"reaches", reached}};
}

// Where clients of an MPS daemon look for it, and whether one has been there.
Json mps_facts() {
  const char* named = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string folder = named != nullptr && *named != '\0' ? named : "/tmp/nvidia-mps";
  struct stat facts {};
  return {{"pipe_directory", folder},
          {"daemon", ::stat((folder + "/control").c_str(), &facts) == 0}};
}

// Ranks measure it when they first have a buffer on a GPU; so much can be said before. Kernels of ranks that
// share a GPU run together under MPS alone.
std::string likely_meeting(const cuda::DeviceFacts& first) {
  if (first.under_mps) return "kernel";
  return first.memory_operations ? "memops" : "host";
}

std::string device_line(const Json& gpu, std::size_t count) {
  std::string text =
      fmt::format("  cuda:{}  {}, {:.1f} GiB, compute capability {}, {} multiprocessors, MPS {}\n",
                  gpu["ordinal"].integer(), gpu["name"].string(),
                  static_cast<double>(gpu["memory_bytes"].integer()) / (1L << 30),
                  gpu["compute_capability"].string(), gpu["multiprocessors"].integer(),
                  gpu["mps"].boolean() ? "on" : "off");
  if (count < 2) return text;
  std::vector<std::string> reached;
  for (const Json& other : gpu["reaches"].items())
    reached.push_back(fmt::format("cuda:{}", other.integer()));
  return text + (reached.empty() ? "          reaches the memory of no other\n"
                                 : fmt::format("          reaches the memory of {}\n",
                                               fmt::join(reached, ", ")));
}

}  // namespace

Json gpu_facts() {
  const auto config = Config::from_environment();
  Json meeting = {{"asked", config.ok() ? config->cuda_meet : "auto"},
                  {"reach", config.ok() ? config->cuda_reach : "auto"},
                  {"likely", Json()}};
  Json facts = {{"built_in", cuda::is_built_in()},
                {"why_none", Json()},
                {"devices", Json::array()},
                {"mps", mps_facts()}};
  const auto count = cuda::count_devices();
  if (!count.ok()) {
    facts["why_none"] = count.status().message();
    facts["meeting"] = std::move(meeting);
    return facts;
  }
  Json devices = Json::array();
  for (int i = 0; i < *count; ++i) {
    const auto device = cuda::look_at(i);
    if (!device.ok()) {
      facts["why_none"] = device.status().message();
      continue;
    }
    if (i == 0)
      meeting["likely"] =
          config.ok() && config->cuda_meet != "auto" ? config->cuda_meet : likely_meeting(*device);
    devices.push_back(device_facts(*device, *count));
  }
  facts["devices"] = std::move(devices);
  facts["meeting"] = std::move(meeting);
  return facts;
}

std::string gpu_text(const Json& facts) {
  const Json& devices = facts["devices"];
  std::string text;
  for (const Json& gpu : devices.items()) text += device_line(gpu, devices.size());
  if (!facts["why_none"].is_null())
    text += fmt::format("  {}: {}\n", devices.size() == 0 ? "none" : "not all",
                        facts["why_none"].string());
  if (devices.size() == 0) return text;
  const Json& meeting = facts["meeting"];
  const std::string& asked = meeting["asked"].string();
  text +=
      asked == "auto"
          ? fmt::format(
                "  ranks that share a GPU meet as is quickest, measured at their first buffer there; "
                "most likely by {}\n",
                meeting["likely"].string())
          : fmt::format("  ranks meet by {}: TUTTI_CUDA_MEET demands it\n", asked);
  if (meeting["reach"].string() != "auto")
    text += fmt::format("  TUTTI_CUDA_REACH is {}\n", meeting["reach"].string());
  const Json& mps = facts["mps"];
  return text + fmt::format("  MPS daemon: {} in {}\n",
                            mps["daemon"].boolean() ? "there is one" : "none",
                            mps["pipe_directory"].string());
}

}  // namespace tutti::tool
