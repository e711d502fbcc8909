-- Autovacuum for a table that is emptied as fast as it is filled. The usual settings
-- wait for a fifth of the table: at 20,000 claims a second and 65 minutes of rows, 13
-- minutes of deletes. Until a vacuum has been there, the first look of each purge
-- walks the index entries of all of them, and new pages are not marked all-visible,
-- which the look ahead of each batch is quicker with.
ALTER TABLE player_mutation_idempotency SET (
  -- Every three minutes at that rate. Each vacuum reads both indexes from end to end,
  -- so more often would cost more than the dead entries do.
  autovacuum_vacuum_scale_factor = 0.05,
  -- The usual 200 lets a vacuum dirty 40 MB a second. Nearly every page of the primary
  -- key has a dead entry on it (6 GB, in no order of time), so it would take longer
  -- than the next three minutes. This is 400 MB a second.
  autovacuum_vacuum_cost_limit = 2000,
  -- The statistics are of times that pass by: an hour-old histogram knows none of the
  -- rows that are there now.
  autovacuum_analyze_scale_factor = 0.05
);
