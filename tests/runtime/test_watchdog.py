"""Where a process stands, read from outside while it runs on."""

import json
import sys
import threading

from accel_runtime.watchdog import place_of


def test_a_thread_that_goes_on_while_it_is_looked_at_does_not_disturb_the_look():
    text, ended = json.dumps(list(range(5))), threading.Event()

    def busy():
        while not ended.is_set():
            json.JSONDecoder().raw_decode(text, 0)
            json.dumps({"a": [1, {"b": 2}]}, indent=1)

    thread = threading.Thread(target=busy)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        places = [place_of(sys._current_frames().get(thread.ident)) for _ in range(3000)]
    finally:
        ended.set()
        sys.setswitchinterval(before)
        thread.join()
    found = [place for place in places if place is not None]
    assert found and all(__file__ in place.line and __file__ in place.stack for place in found)


def test_a_thread_outside_of_any_script_has_no_place():
    assert place_of(None) is None
