// A conversation's output when nothing else runs: an engine with one thread, without prefix cache,
// speculation or other turns, given the whole context at once.
#ifndef WEFT_TESTS_PROPERTY_ORACLE_H_
#define WEFT_TESTS_PROPERTY_ORACLE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/property/contexts.h"
#include "tests/property/turn_record.h"
#include "weft/engine.h"

namespace weft::testing {

// One thread.
class Oracle {
 public:
  explicit Oracle(std::shared_ptr<const Model> model) : model_(std::move(model)), rows_(*model_) {}
  virtual ~Oracle() = default;

  const Model& model() const { return *model_; }
  // The values of the rows in contexts.
  RowBook& rows() { return rows_; }

  // The output of choice `choice` of a turn with these options after `context`. Rows that equal a
  // token's embedding are replaced by the token, if that may not make a difference. Results are
  // cached, because programs ask the same again.
  StatusOr<ChoiceRecord> Ask(KvType kv_type, const Context& context, const TurnOptions& options,
                             int choice);
  // Empty if `got` is the same, to the bit (CompareChoices); otherwise the difference.
  virtual StatusOr<std::string> Compare(KvType kv_type, const Context& context,
                                        const TurnOptions& options, int choice,
                                        const ChoiceRecord& got);

 private:
  StatusOr<Engine*> EngineOf(KvType kv_type);
  bool TellsRowsApart(const TurnOptions& options) const;

  const std::shared_ptr<const Model> model_;
  RowBook rows_;
  std::map<KvType, std::unique_ptr<Engine>> engines_;
  std::map<std::string, ChoiceRecord> answers_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTY_ORACLE_H_
