/* One remote edge of a job under abort: tokens, credits, and a second epoch that meets the first one's messages.
 *
 *   Producer --token(epoch, number, slot)--> bag --> Receiver --> READERS actors that read the slot
 *            <--credit(epoch, number, slot)-- bag <-- the last reader's release
 *
 * What stands for what: Producer is ActorMachine with RankExecutor::Send; Receiver is MessageLedger::Enter, Front and Pop with
 * RankExecutor::OnToken; Reader is an actor with RankExecutor::Release. The bags are networks that reorder, and may show one
 * message twice. An abort may come at any moment: all stop between two acts, and the job begins again in the next epoch
 * with fresh counts while messages of the old epoch are still under way.
 *
 * Checked: a slot is not written while it is read (I3); every token is read once, in order, as it was written (I2); nothing
 * of another epoch is accepted (I5); credits + under way + held = slots (I1); the job always ends, and ends well unless a
 * message came twice (ltl). Each macro below plants one error, which the checker must find:
 *
 *   CREDIT_BEFORE_READ  a reader releases first and reads then      CREDIT_OF_FIRST_READER  the first release frees the slot
 *   CREDIT_LOST         the credit of one token is never sent       CREDIT_TOO_MANY         one credit more than slots at start
 *   FENCE_MISSING       the epoch is not compared                   ORDER_UNCHECKED         tokens are taken as they come
 *   TWICE_ACCEPTED      a repeated number is taken                  ABORT_UNHEARD           who waits for a token hears no abort
 *   TOKEN_BEFORE_WRITE  the token leaves before the act has ended
 */
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef TOKENS
#define TOKENS 3
#endif
#define READERS 2
#define EPOCHS 2
#define NOTHING 255

mtype = { kRunning, kAborting, kDone, kFailed };

chan tokens = [SLOTS * EPOCHS + 1] of { byte, byte, byte };  /* epoch, number, slot */
chan credits = [SLOTS * EPOCHS + 1] of { byte, byte, byte };

mtype job = kRunning;
byte epoch = 0;
byte num_working = 0;      /* processes of this epoch that have not stopped */
bool repeated = false;     /* the network has shown a message twice */
bool over = false;

/* Of the current epoch. */
byte memory[SLOTS];        /* the number of the token whose payload lies there */
bool written[SLOTS];       /* the producer is at it */
byte readers[SLOTS];       /* reads that are due or under way */
byte free;                 /* credits at the producer */
byte sent, received;       /* tokens: by the producer, by the receiver in order */
byte credits_sent, credits_received;
byte available[READERS];   /* tokens that a reader has not begun */

inline BeginEpoch() {
  d_step {
    free = SLOTS;
#ifdef CREDIT_TOO_MANY
    free = SLOTS + 1;
#endif
    sent = 0; received = 0; credits_sent = 0; credits_received = 0;
    i = 0;
    do
    :: i < SLOTS -> memory[i] = NOTHING; written[i] = false; readers[i] = 0; i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < READERS -> available[i] = 0; i++
    :: else -> break
    od;
    i = 0;
    num_working = 2 + READERS;
    job = kRunning;
  }
}

inline Fail() {
  assert(repeated);  /* nothing else may end a job */
  job = kFailed
}

#define RUNNING (job == kRunning)
#define STOPPED (job != kRunning)

proctype Producer(byte mine) {
  byte slot = 0, e, n, s;
  do
  :: STOPPED -> break
  :: RUNNING && sent == TOKENS && credits_received == TOKENS -> break
  :: RUNNING && free > 0 && sent < TOKENS ->
       atomic {
         free--;
         assert(readers[slot] == 0);  /* I3 */
         written[slot] = true
       };
#ifdef TOKEN_BEFORE_WRITE
       atomic { tokens!mine,sent,slot; sent++ };
       atomic { memory[slot] = sent - 1; written[slot] = false; slot = (slot + 1) % SLOTS }
#else
       atomic { assert(readers[slot] == 0); memory[slot] = sent; written[slot] = false };
       atomic { tokens!mine,sent,slot; sent++; slot = (slot + 1) % SLOTS }
#endif
  :: RUNNING && nempty(credits) ->
       atomic {
         if
         :: credits??[eval(mine),eval(credits_received),_] -> credits??eval(mine),eval(credits_received),s;
              credits_received++; free++;
              assert(free <= SLOTS)  /* I1 */
         :: else -> credits?e,n,s;  /* of another epoch, or a second time */
              if
#ifdef FENCE_MISSING
              :: e != mine -> assert(e == mine)  /* I5 */
#else
              :: e != mine -> skip  /* fenced */
#endif
              :: e == mine -> assert(n < credits_received); Fail()
              fi
         fi;
         e = 0; n = 0; s = 0
       }
  od;
  num_working--
}

proctype Receiver(byte mine) {
  byte e, n, s, r;
  do
  :: STOPPED -> break
  :: RUNNING && received == TOKENS -> break
  :: RUNNING && nempty(tokens) ->
       atomic {
         if
#ifndef ORDER_UNCHECKED
         :: tokens??[eval(mine),eval(received),_] -> tokens??eval(mine),eval(received),s;
              goto take
#endif
         :: else -> tokens?e,n,s;  /* of another epoch, or a second time */
              if
#ifdef FENCE_MISSING
              :: e != mine -> assert(e == mine)  /* I5 */
#else
              :: e != mine -> skip  /* fenced */
#endif
#ifdef TWICE_ACCEPTED
              :: (e == mine && n < received) -> goto take
#else
              :: (e == mine && n < received) -> Fail()
#endif
#ifdef ORDER_UNCHECKED
              :: (e == mine && n >= received) -> goto take
#endif
              fi
         fi;
         goto next_message;
take:
         assert(readers[s] == 0);        /* I1: the slot was free */
         assert(s == received % SLOTS);  /* I2: slots go round */
         readers[s] = READERS;
         r = 0;
         do
         :: r < READERS -> available[r] = available[r] + 1; r++
         :: else -> break
         od;
         received++;
next_message:
         e = 0; n = 0; s = 0; r = 0
       }
  od;
  num_working--
}

inline Release() {
  d_step {
    readers[slot] = readers[slot] - 1;
    if
#ifdef CREDIT_OF_FIRST_READER
    :: readers[slot] == READERS - 1 -> credits!mine,credits_sent,slot; credits_sent++
#else
#ifdef CREDIT_LOST
    :: readers[slot] == 0 && credits_sent != TOKENS - 2 -> credits!mine,credits_sent,slot; credits_sent++
#else
    :: readers[slot] == 0 -> credits!mine,credits_sent,slot; credits_sent++
#endif
#endif
    :: else -> skip
    fi
  }
}

proctype Reader(byte mine; byte me) {
  byte number = 0, slot = 0;
  do
#ifdef ABORT_UNHEARD
  :: STOPPED && available[me] > 0 -> break
#else
  :: STOPPED -> break
#endif
  :: RUNNING && number == TOKENS -> break
  :: RUNNING && available[me] > 0 ->
       available[me] = available[me] - 1;
#ifdef CREDIT_BEFORE_READ
       Release();
#endif
       /* The act begins, and ends. */
       atomic { assert(!written[slot]); assert(memory[slot] == number) };
       atomic { assert(!written[slot]); assert(memory[slot] == number) };
#ifndef CREDIT_BEFORE_READ
       Release();
#endif
       number++;
       slot = (slot + 1) % SLOTS
  od;
  num_working--
}

/* Shows one message that is under way a second time, and lets one overtake the others, at any moment or never. */
active proctype Repeater() {
  byte e, n, s;
  if
  :: atomic { nempty(tokens) -> tokens?<e,n,s>; tokens!e,n,s; repeated = true }
  :: atomic { nempty(credits) -> credits?<e,n,s>; credits!e,n,s; repeated = true }
  :: over
  fi
}

active proctype Reorderer() {
  byte e, n, s;
  if
  :: atomic { nempty(tokens) -> tokens?e,n,s; tokens!e,n,s }
  :: over
  fi
}

/* Asks for an abort in the first epoch, at any moment or never. */
active proctype Aborter() {
  if
  :: atomic { (RUNNING && epoch == 0) -> job = kAborting }
  :: over
  fi
}

active proctype Coordinator() {
  byte i = 0;
  do
  :: BeginEpoch();
     atomic { run Producer(epoch); run Receiver(epoch); run Reader(epoch, 0); run Reader(epoch, 1) };
     num_working == 0;  /* nobody begins before all have stopped */
     if
     :: atomic { job == kAborting -> epoch++ }
     :: atomic { RUNNING ->
          job = kDone;
          assert(sent == TOKENS && received == TOKENS && credits_received == TOKENS && free == SLOTS) }  /* I8 */
        break
     :: job == kFailed -> break
     fi
  od;
  over = true
}

#ifdef PROGRESS
ltl ends { <> over }
#endif
