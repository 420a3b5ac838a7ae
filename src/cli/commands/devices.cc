// weft devices: what can compute on this machine.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/strings.h"
#include "cli/commands/command.h"
#include "cli/terminal/output.h"
#include "compute/backend.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

struct DevicesFlags {
  bool json = false;
};

// A device, or a backend that has none here.
struct DeviceRow {
  std::string_view backend;
  int device = 0;
  std::string name;
  MemoryInfo memory;
  std::string problem;  // empty: it can be used
};

void AddRows(std::string_view name, std::vector<DeviceRow>* rows) {
  const auto backend = FindBackend(name);
  const Status usable = backend.ok() ? (*backend)->Available() : backend.status();
  if (!usable.ok()) {
    rows->push_back({.backend = name, .problem = std::string(Message(usable))});
    return;
  }
  for (int device = 0; device < (*backend)->device_count(); ++device) {
    DeviceRow row = {.backend = name, .device = device, .name = (*backend)->NameOfDevice(device)};
    const auto memory = (*backend)->MemoryOf(device);
    if (memory.ok())
      row.memory = *memory;
    else
      row.problem = Message(memory.status());
    rows->push_back(std::move(row));
  }
}

void PrintDeviceJson(const DeviceRow& row) {
  if (!row.problem.empty()) {
    PrintJsonLine({{"backend", row.backend}, {"problem", row.problem}});
    return;
  }
  PrintJsonLine({{"backend", row.backend},
                 {"device", row.device},
                 {"name", row.name},
                 {"memory_bytes", row.memory.total_bytes},
                 {"free_bytes", row.memory.free_bytes}});
}

void PrintRows(const std::vector<DeviceRow>& rows) {
  std::vector<std::vector<std::string>> lines = {{"BACKEND", "DEVICE", "MEMORY", "FREE", "NAME"}};
  for (const DeviceRow& row : rows) {
    if (!row.problem.empty()) continue;
    lines.push_back({std::string(row.backend), StrCat(row.device),
                     HumanBytes(static_cast<uint64_t>(row.memory.total_bytes)),
                     HumanBytes(static_cast<uint64_t>(row.memory.free_bytes)),
                     Printable(row.name, 100)});
  }
  PrintTable(lines);
  for (const DeviceRow& row : rows) {
    if (!row.problem.empty()) PrintWrapped(StrCat(row.backend, ": ", Printable(row.problem, 1000)));
  }
}

Status Devices(const DevicesFlags& flags) {
  std::vector<DeviceRow> rows;
  for (const std::string_view name : BackendNames()) AddRows(name, &rows);
  for (const std::string_view name : BackendNamesNotCompiledIn()) AddRows(name, &rows);
  if (!flags.json) {
    PrintRows(rows);
  } else {
    for (const DeviceRow& row : rows) PrintDeviceJson(row);
  }
  return FlushStdout();
}

}  // namespace

CommandBody MakeDevicesCommand(CLI::App* app) {
  auto flags = std::make_shared<DevicesFlags>();
  app->add_flag("--json", flags->json, "Print one JSON object per device");
  app->footer(
      "\nLists the devices of every backend with their memory: --backend and --device of the "
      "other\n"
      "commands choose among them. A backend that cannot be used here is listed with the reason.");
  return [flags] { return Devices(*flags); };
}

}  // namespace weft::cli
