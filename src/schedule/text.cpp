#include "schedule/text.hpp"

#include <fmt/format.h>

#include <iterator>

namespace tutti::schedule {
namespace {

using Out = std::back_insert_iterator<std::string>;

void put_region(Out out, const Region& region) {
  const std::string_view space = to_string(region.space);
  if (region.count == 1) {
    fmt::format_to(out, "{}[{}]", space, region.first);
  } else if (region.count == 0) {
    fmt::format_to(out, "{}[{}+0]", space, region.first);
  } else {
    fmt::format_to(out, "{}[{}..{}]", space, region.first, region.first + region.count - 1);
  }
}

void put_source(Out out, const Source& source) {
  if (source.raw) fmt::format_to(out, "raw ");
  if (source.peer == kLocal) {
    put_region(out, source.region);
  } else {
    fmt::format_to(out, "{}@{}", source.peer, source.step);
  }
}

void put_op(Out out, const Op& op) {
  fmt::format_to(out, "@{} {} ", op.step, to_string(op.kind));
  switch (op.kind) {
    case OpKind::send:
      put_region(out, op.src);
      fmt::format_to(out, " -> {}", op.peer);
      return;
    case OpKind::recv:
      put_region(out, op.dst);
      fmt::format_to(out, " <- {}", op.peer);
      return;
    case OpKind::copy:
      put_region(out, op.dst);
      fmt::format_to(out, " = ");
      put_region(out, op.src);
      return;
    case OpKind::reduce:
      put_region(out, op.dst);
      fmt::format_to(out, " = ");
      for (std::size_t i = 0; i < op.sources.size(); ++i) {
        if (i > 0) fmt::format_to(out, " + ");
        put_source(out, op.sources[i]);
      }
      if (op.balanced) fmt::format_to(out, " balanced");
      if (op.finish) fmt::format_to(out, " finish");
      return;
  }
}

void put_program(Out out, const Program& program) {
  fmt::format_to(out, "program {} {} rank {} of {} root {} cut {}{}\n",
                 to_string(program.collective), to_string(program.algorithm), program.rank,
                 program.size, program.root, program.cut, program.in_place ? " in_place" : "");
  if (!program.scratch.empty()) {
    fmt::format_to(out, "  scratch");
    for (std::uint64_t extent : program.scratch) fmt::format_to(out, " {}", extent);
    fmt::format_to(out, "\n");
  }
  for (const Op& op : program.ops) {
    fmt::format_to(out, "  ");
    put_op(out, op);
    fmt::format_to(out, "\n");
  }
}

// JSON: words and numbers only, so nothing needs escaping.

void put_json_region(Out out, std::string_view key, const Region& region) {
  fmt::format_to(out, ",\"{}\":[\"{}\",{},{}]", key, to_string(region.space), region.first,
                 region.count);
}

void put_json_sources(Out out, const std::vector<Source>& sources) {
  fmt::format_to(out, ",\"sources\":[");
  for (std::size_t i = 0; i < sources.size(); ++i) {
    fmt::format_to(out, "{}{{\"raw\":{}", i > 0 ? "," : "", sources[i].raw);
    if (sources[i].peer == kLocal) {
      put_json_region(out, "region", sources[i].region);
    } else {
      fmt::format_to(out, ",\"peer\":{},\"step\":{}", sources[i].peer, sources[i].step);
    }
    fmt::format_to(out, "}}");
  }
  fmt::format_to(out, "]");
}

void put_json_op(Out out, const Op& op) {
  fmt::format_to(out, "{{\"op\":\"{}\",\"step\":{}", to_string(op.kind), op.step);
  switch (op.kind) {
    case OpKind::send:
      fmt::format_to(out, ",\"peer\":{}", op.peer);
      put_json_region(out, "src", op.src);
      break;
    case OpKind::recv:
      fmt::format_to(out, ",\"peer\":{}", op.peer);
      put_json_region(out, "dst", op.dst);
      break;
    case OpKind::copy:
      put_json_region(out, "dst", op.dst);
      put_json_region(out, "src", op.src);
      break;
    case OpKind::reduce:
      put_json_region(out, "dst", op.dst);
      put_json_sources(out, op.sources);
      fmt::format_to(out, ",\"finish\":{}", op.finish);
      if (op.balanced) fmt::format_to(out, ",\"balanced\":true");
      break;
  }
  fmt::format_to(out, "}}");
}

void put_json_program(Out out, const Program& program) {
  fmt::format_to(out,
                 "{{\"collective\":\"{}\",\"algorithm\":\"{}\",\"size\":{},\"rank\":{},"
                 "\"root\":{},\"in_place\":{},\"cut\":{},\"scratch\":[",
                 to_string(program.collective), to_string(program.algorithm), program.size,
                 program.rank, program.root, program.in_place, program.cut);
  for (std::size_t i = 0; i < program.scratch.size(); ++i) {
    fmt::format_to(out, "{}{}", i > 0 ? "," : "", program.scratch[i]);
  }
  fmt::format_to(out, "],\"ops\":[");
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    fmt::format_to(out, "{}", i > 0 ? ",\n" : "\n");
    put_json_op(out, program.ops[i]);
  }
  fmt::format_to(out, "]}}");
}

}  // namespace

std::string print(const Op& op) {
  std::string text;
  put_op(std::back_inserter(text), op);
  return text;
}

std::string print(const Program& program) {
  std::string text;
  put_program(std::back_inserter(text), program);
  return text;
}

std::string print(std::span<const Program> programs) {
  std::string text;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    if (i > 0) text += '\n';
    put_program(std::back_inserter(text), programs[i]);
  }
  return text;
}

std::string print_json(std::span<const Program> programs) {
  std::string text = "{\"format\":\"tutti schedule 1\",\"programs\":[";
  for (std::size_t i = 0; i < programs.size(); ++i) {
    text += i > 0 ? ",\n" : "\n";
    put_json_program(std::back_inserter(text), programs[i]);
  }
  text += "]}\n";
  return text;
}

}  // namespace tutti::schedule
