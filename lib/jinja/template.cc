#include "jinja/template.h"

#include <algorithm>
#include <ctime>

#include "jinja/interpreter.h"
#include "jinja/json_value.h"
#include "jinja/parser.h"
#include "nlohmann/json.hpp"

namespace weft {
namespace {

using jinja::DictObject;
using jinja::Meter;

int64_t LocalSeconds() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  if (localtime_r(&now, &parts) == nullptr) return now;
  return now + parts.tm_gmtoff;
}

}  // namespace

int64_t WallClock(const RenderOptions& options) {
  return options.wall_clock_s ? *options.wall_clock_s : LocalSeconds();
}

ChatTemplate::ChatTemplate(std::shared_ptr<const jinja::Program> program)
    : program_(std::move(program)) {}

ChatTemplate::~ChatTemplate() = default;

StatusOr<std::shared_ptr<const ChatTemplate>> ChatTemplate::Parse(std::string source) {
  WEFT_ASSIGN_OR_RETURN(auto program, jinja::ParseProgram(std::move(source)));
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::move(program)));
}

StatusOr<std::string> ChatTemplate::Render(const nlohmann::ordered_json& context,
                                           const RenderOptions& options,
                                           const AddVariables& add) const {
  if (!context.is_object()) {
    return InvalidArgument("a chat template is rendered with an object of variables");
  }
  Meter meter(options.limits.max_steps, options.limits.max_bytes);
  const auto variables = std::make_shared<DictObject>(&meter);
  SetMembers(context, /*depth=*/0, &meter, variables.get());
  if (add) add(variables.get(), &meter);
  if (!meter.ok()) return meter.status();
  jinja::Interpreter interpreter(program_.get(), variables.get(), WallClock(options), &meter);
  return interpreter.Render();
}

const std::string& ChatTemplate::source() const { return program_->source; }

bool ChatTemplate::Mentions(std::string_view name) const {
  return std::ranges::find(program_->symbols, name) != program_->symbols.end();
}

}  // namespace weft
