// Purpose of a collective, a message or an action in the flight record: which
// bucket, microbatch and stage, as numbers, so that noting it allocates
// nothing.

#ifndef TANDEM_CORE_FLIGHT_PURPOSE_H_
#define TANDEM_CORE_FLIGHT_PURPOSE_H_

namespace tandem {

struct FlightPurpose {
  // "bucket", "activations", "loss". Text that is never freed.
  const char* what = "";
  int index = -1;  // of the bucket; -1, here and below: none
  int stage = -1;
  int microbatch = -1;
};

// What the calling thread starts until the end of the block is for that, unless
// a scope inside says otherwise. Costs two stores.
//
//   const FlightPurposeScope scope({"bucket", 3});
class FlightPurposeScope {
 public:
  explicit FlightPurposeScope(const FlightPurpose& purpose);
  ~FlightPurposeScope();
  FlightPurposeScope(const FlightPurposeScope&) = delete;
  FlightPurposeScope& operator=(const FlightPurposeScope&) = delete;

  // The innermost one's of this thread; an empty one outside of all.
  static const FlightPurpose& Current();

 private:
  const FlightPurpose before_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_FLIGHT_PURPOSE_H_
