// The location of the reference data, for tests that compare against it or replay it.
#ifndef WEFT_TESTS_SUPPORT_GOLDENS_H_
#define WEFT_TESTS_SUPPORT_GOLDENS_H_

#include <cstdlib>
#include <filesystem>
#include <string>

namespace weft::testing {

// The folder of reference data: $WEFT_GOLDENS, or ../shared/goldens next to the source tree. Empty
// if there is none; tests then skip with WEFT_REQUIRE_GOLDENS.
inline std::string GoldensDir() {
  const char* chosen = std::getenv("WEFT_GOLDENS");
  const std::string dir = chosen ? chosen : std::string(WEFT_SOURCE_DIR) + "/../shared/goldens";
  return std::filesystem::is_directory(dir) ? dir : std::string();
}

// Recorded requests of coding agents: $WEFT_AGENTS, or ../shared/agents next to the source tree.
// Empty if there is none.
inline std::string AgentsDir() {
  const char* chosen = std::getenv("WEFT_AGENTS");
  const std::string dir = chosen ? chosen : std::string(WEFT_SOURCE_DIR) + "/../shared/agents";
  return std::filesystem::is_directory(dir) ? dir : std::string();
}

}  // namespace weft::testing

#define WEFT_REQUIRE_GOLDENS()                                                      \
  do {                                                                              \
    if (::weft::testing::GoldensDir().empty())                                      \
      GTEST_SKIP() << "no reference data: set WEFT_GOLDENS to the goldens' folder"; \
  } while (false)

#endif  // WEFT_TESTS_SUPPORT_GOLDENS_H_
