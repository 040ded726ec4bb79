drop index held_keys_state;
