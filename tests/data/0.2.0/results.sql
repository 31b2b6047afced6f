BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE attempts (
	result_id INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	target VARCHAR NOT NULL, 
	accelerator VARCHAR NOT NULL, 
	revision VARCHAR NOT NULL, 
	deviates BOOLEAN NOT NULL, 
	submitted DATETIME NOT NULL, 
	verdict VARCHAR, 
	cause VARCHAR, 
	message VARCHAR NOT NULL, 
	seconds DOUBLE, 
	out_of_range BOOLEAN NOT NULL, 
	image VARCHAR NOT NULL, 
	purpose VARCHAR NOT NULL, 
	charged_seconds DOUBLE, 
	cost DOUBLE, 
	CONSTRAINT pk_attempts PRIMARY KEY (result_id, attempt), 
	CONSTRAINT fk_attempts_result_id_results FOREIGN KEY(result_id) REFERENCES results (id) ON DELETE CASCADE
);
INSERT INTO "attempts" VALUES(1,1,'local','','',0,'2026-11-28 23:11:06.205020','passed',NULL,'',0.075,0,'','first',7.50000476837158203125e-02,NULL);
INSERT INTO "attempts" VALUES(2,1,'local','','',0,'2026-11-28 23:11:06.771013','failed','check','junit: 1 of 1 test did not pass (1 failed)
m.t: 1 != 2',0.021,0,'','first',2.0999908447265625e-02,NULL);
INSERT INTO "attempts" VALUES(3,1,'local','','',0,'2026-11-28 23:11:31.760171','passed',NULL,'',0.027,0,'','first',2.6999950408935546875e-02,NULL);
INSERT INTO "attempts" VALUES(4,1,'local','','',0,'2026-11-28 23:11:32.286100','failed','check','junit: 1 of 1 test did not pass (1 failed)
m.t: 1 != 2',0.025,0,'','first',2.5000095367431640625e-02,NULL);
INSERT INTO "attempts" VALUES(5,1,'local','','',0,'2026-11-28 23:11:53.888338','passed',NULL,'',0.033,0,'','first',3.299999237060546875e-02,NULL);
INSERT INTO "attempts" VALUES(6,1,'local','','',0,'2026-11-28 23:11:54.527008','failed','check','junit: 1 of 1 test did not pass (1 failed)
m.t: 1 != 2',0.016,0,'','first',1.60000324249267578125e-02,NULL);
INSERT INTO "attempts" VALUES(7,1,'local','','',0,'2026-11-28 23:12:19.301860','passed',NULL,'',0.071,0,'','first',0.0710000991821289,NULL);
INSERT INTO "attempts" VALUES(8,1,'local','','',0,'2026-11-28 23:12:20.105200','failed','check','junit: 1 of 1 test did not pass (1 failed)
m.t: 1 != 2',0.03,0,'','first',2.99999713897705078125e-02,NULL);
INSERT INTO "attempts" VALUES(9,1,'local','','',0,'2026-11-28 23:12:43.233186','passed',NULL,'',0.035,0,'','first',3.50000858306884765625e-02,NULL);
INSERT INTO "attempts" VALUES(10,1,'local','','',0,'2026-11-28 23:12:43.961268','failed','check','junit: 1 of 1 test did not pass (1 failed)
m.t: 1 != 2',0.018,0,'','first',1.79998874664306640625e-02,NULL);
CREATE TABLE case_counts (
	result_id INTEGER NOT NULL, 
	outcome VARCHAR NOT NULL, 
	number INTEGER NOT NULL, 
	CONSTRAINT pk_case_counts PRIMARY KEY (result_id, outcome), 
	CONSTRAINT fk_case_counts_result_id_results FOREIGN KEY(result_id) REFERENCES results (id) ON DELETE CASCADE
);
INSERT INTO "case_counts" VALUES(1,'passed',1);
INSERT INTO "case_counts" VALUES(2,'failed',1);
INSERT INTO "case_counts" VALUES(3,'passed',1);
INSERT INTO "case_counts" VALUES(4,'failed',1);
INSERT INTO "case_counts" VALUES(5,'passed',1);
INSERT INTO "case_counts" VALUES(6,'failed',1);
INSERT INTO "case_counts" VALUES(7,'passed',1);
INSERT INTO "case_counts" VALUES(8,'failed',1);
INSERT INTO "case_counts" VALUES(9,'passed',1);
INSERT INTO "case_counts" VALUES(10,'failed',1);
CREATE TABLE case_results (
	result_id INTEGER NOT NULL, 
	case_id INTEGER NOT NULL, 
	outcome VARCHAR NOT NULL, 
	seconds DOUBLE, 
	message VARCHAR NOT NULL, 
	text VARCHAR NOT NULL, 
	CONSTRAINT pk_case_results PRIMARY KEY (result_id, case_id), 
	CONSTRAINT fk_case_results_result_id_results FOREIGN KEY(result_id) REFERENCES results (id) ON DELETE CASCADE, 
	CONSTRAINT fk_case_results_case_id_cases FOREIGN KEY(case_id) REFERENCES cases (id)
)
 WITHOUT ROWID

;
INSERT INTO "case_results" VALUES(1,1,'passed',0.5,'','');
INSERT INTO "case_results" VALUES(2,2,'failed',0.5,'1 != 2','');
INSERT INTO "case_results" VALUES(3,1,'passed',0.5,'','');
INSERT INTO "case_results" VALUES(4,2,'failed',0.5,'1 != 2','');
INSERT INTO "case_results" VALUES(5,1,'passed',0.5,'','');
INSERT INTO "case_results" VALUES(6,2,'failed',0.5,'1 != 2','');
INSERT INTO "case_results" VALUES(7,1,'passed',0.5,'','');
INSERT INTO "case_results" VALUES(8,2,'failed',0.5,'1 != 2','');
INSERT INTO "case_results" VALUES(9,1,'passed',0.5,'','');
INSERT INTO "case_results" VALUES(10,2,'failed',0.5,'1 != 2','');
CREATE TABLE cases (
	id INTEGER NOT NULL, 
	cell_id INTEGER NOT NULL, 
	suite VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	CONSTRAINT pk_cases PRIMARY KEY (id), 
	CONSTRAINT fk_cases_cell_id_cells FOREIGN KEY(cell_id) REFERENCES cells (id), 
	CONSTRAINT uq_cases_cell_id UNIQUE (cell_id, suite, name)
);
INSERT INTO "cases" VALUES(1,2,'m','t');
INSERT INTO "cases" VALUES(2,1,'m','t');
CREATE TABLE cells (
	id INTEGER NOT NULL, 
	project VARCHAR NOT NULL, 
	cell VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	settings JSON NOT NULL, 
	labels JSON NOT NULL, 
	CONSTRAINT pk_cells PRIMARY KEY (id), 
	CONSTRAINT uq_cells_project UNIQUE (project, cell)
);
INSERT INTO "cells" VALUES(1,'grid','4cea6ac6cd85','x=b','{"x": "b"}','{"x": "b"}');
INSERT INTO "cells" VALUES(2,'grid','77667112c6ee','x=a','{"x": "a"}','{"x": "a"}');
CREATE TABLE checks (
	result_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	"check" VARCHAR NOT NULL, 
	passed BOOLEAN, 
	message VARCHAR NOT NULL, 
	file VARCHAR NOT NULL, 
	line INTEGER, 
	CONSTRAINT pk_checks PRIMARY KEY (result_id, position), 
	CONSTRAINT fk_checks_result_id_results FOREIGN KEY(result_id) REFERENCES results (id) ON DELETE CASCADE
);
INSERT INTO "checks" VALUES(1,0,'exit_status',1,'exit status 0, expected 0','',NULL);
INSERT INTO "checks" VALUES(1,1,'metric',NULL,'time is 1.5 s; there are no bounds yet: `results update_bounds` writes bounds when there are enough runs','',NULL);
INSERT INTO "checks" VALUES(1,2,'junit',1,'1 passed, in 0.5 s','',NULL);
INSERT INTO "checks" VALUES(2,0,'exit_status',1,'exit status 0, expected 0','',NULL);
INSERT INTO "checks" VALUES(2,1,'metric',NULL,'time is 1.5 s; there are no bounds yet: `results update_bounds` writes bounds when there are enough runs','',NULL);
INSERT INTO "checks" VALUES(2,2,'junit',0,'1 of 1 test did not pass (1 failed)
m.t: 1 != 2','',NULL);
INSERT INTO "checks" VALUES(3,0,'exit_status',1,'exit status 0, expected 0','',NULL);
INSERT INTO "checks" VALUES(3,1,'metric',NULL,'time is 1.5 s; there are no bounds yet: `results update_bounds` writes bounds when there are enough runs','',NULL);
INSERT INTO "checks" VALUES(3,2,'junit',1,'1 passed, in 0.5 s','',NULL);
INSERT INTO "checks" VALUES(4,0,'exit_status',1,'exit status 0, expected 0','',NULL);
INSERT INTO "checks" VALUES(4,1,'metric',NULL,'time is 1.5 s; there are no bounds yet: `results update_bounds` writes bounds when there are enough runs','',NULL);
INSERT INTO "checks" VALUES(4,2,'junit',0,'1 of 1 test did not pass (1 failed)
m.t: 1 != 2','',NULL);
INSERT INTO "checks" VALUES(5,0,'exit_status',1,'exit status 0, expected 0','',NULL);
INSERT INTO "checks" VALUES(5,1,'metric',NULL,'time is 1.5 s; there are no bounds yet: `results update_bounds` writes bounds when there are enough runs','',NULL);
INSERT INTO "checks" VALUES(5,2,'junit',1,'1 passed, in 0.5 s','',NULL);
INSERT INTO "checks" VALUES(6,0,'exit_status',1,'exit status 0, expected 0','',NULL);
INSERT INTO "checks" VALUES(6,1,'metric',NULL,'time is 1.5 s; there are no bounds yet: `results update_bounds` writes bounds when there are enough runs','',NULL);
INSERT INTO "checks" VALUES(6,2,'junit',0,'1 of 1 test did not pass (1 failed)
m.t: 1 != 2','',NULL);
INSERT INTO "checks" VALUES(7,0,'exit_status',1,'exit status 0, expected 0','',NULL);
INSERT INTO "checks" VALUES(7,1,'metric',NULL,'time is 1.5 s; there are no bounds yet: `results update_bounds` writes bounds when there are enough runs','',NULL);
INSERT INTO "checks" VALUES(7,2,'junit',1,'1 passed, in 0.5 s','',NULL);
INSERT INTO "checks" VALUES(8,0,'exit_status',1,'exit status 0, expected 0','',NULL);
INSERT INTO "checks" VALUES(8,1,'metric',NULL,'time is 1.5 s; there are no bounds yet: `results update_bounds` writes bounds when there are enough runs','',NULL);
INSERT INTO "checks" VALUES(8,2,'junit',0,'1 of 1 test did not pass (1 failed)
m.t: 1 != 2','',NULL);
INSERT INTO "checks" VALUES(9,0,'exit_status',1,'exit status 0, expected 0','',NULL);
INSERT INTO "checks" VALUES(9,1,'metric',NULL,'time is 1.5 s; there are no bounds yet: `results update_bounds` writes bounds when there are enough runs','',NULL);
INSERT INTO "checks" VALUES(9,2,'junit',1,'1 passed, in 0.5 s','',NULL);
INSERT INTO "checks" VALUES(10,0,'exit_status',1,'exit status 0, expected 0','',NULL);
INSERT INTO "checks" VALUES(10,1,'metric',NULL,'time is 1.5 s; there are no bounds yet: `results update_bounds` writes bounds when there are enough runs','',NULL);
INSERT INTO "checks" VALUES(10,2,'junit',0,'1 of 1 test did not pass (1 failed)
m.t: 1 != 2','',NULL);
CREATE TABLE merged_shards (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	run VARCHAR NOT NULL, 
	started DATETIME NOT NULL, 
	CONSTRAINT pk_merged_shards PRIMARY KEY (id), 
	CONSTRAINT fk_merged_shards_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE, 
	CONSTRAINT uq_merged_shards_run_id UNIQUE (run_id, run, started)
);
CREATE TABLE notifications (
	id INTEGER NOT NULL, 
	project VARCHAR NOT NULL, 
	presets VARCHAR NOT NULL, 
	job VARCHAR NOT NULL, 
	receiver VARCHAR NOT NULL, 
	announced VARCHAR NOT NULL, 
	announced_run VARCHAR NOT NULL, 
	latest_start DATETIME NOT NULL, 
	delivering_until DATETIME, 
	CONSTRAINT pk_notifications PRIMARY KEY (id), 
	CONSTRAINT uq_notifications_project UNIQUE (project, presets, job, receiver)
);
CREATE TABLE results (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	cell_id INTEGER NOT NULL, 
	step VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	verdict VARCHAR, 
	cause VARCHAR, 
	message VARCHAR NOT NULL, 
	counts BOOLEAN NOT NULL, 
	seconds DOUBLE, 
	fingerprint VARCHAR NOT NULL, 
	target VARCHAR NOT NULL, 
	host VARCHAR NOT NULL, 
	accelerator VARCHAR NOT NULL, 
	cost DOUBLE, 
	out_of_range BOOLEAN NOT NULL, 
	reuse_key VARCHAR NOT NULL, 
	reused_from VARCHAR NOT NULL, 
	CONSTRAINT pk_results PRIMARY KEY (id), 
	CONSTRAINT fk_results_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE, 
	CONSTRAINT fk_results_cell_id_cells FOREIGN KEY(cell_id) REFERENCES cells (id), 
	CONSTRAINT uq_results_run_id UNIQUE (run_id, cell_id)
);
INSERT INTO "results" VALUES(1,1,2,'000__test/000__x=a','cell','passed',NULL,'',1,0.553,'6e33da7ceb47','local','ci-1','',NULL,0,'','');
INSERT INTO "results" VALUES(2,1,1,'000__test/001__x=b','cell','xfailed','check','expected to fail until 2099-12-31 (ada): TPG-1
junit: 1 of 1 test did not pass (1 failed)
m.t: 1 != 2',1,0.108,'fe28741ab90b','local','ci-1','',NULL,0,'','');
INSERT INTO "results" VALUES(3,2,2,'000__test/000__x=a','cell','passed',NULL,'',1,0.509,'6e33da7ceb47','local','ci-1','',NULL,0,'','');
INSERT INTO "results" VALUES(4,2,1,'000__test/001__x=b','cell','xfailed','check','expected to fail until 2099-12-31 (ada): TPG-1
junit: 1 of 1 test did not pass (1 failed)
m.t: 1 != 2',1,0.075,'fe28741ab90b','local','ci-1','',NULL,0,'','');
INSERT INTO "results" VALUES(5,3,2,'000__test/000__x=a','cell','passed',NULL,'',1,0.654,'6e33da7ceb47','local','ci-1','',NULL,0,'','');
INSERT INTO "results" VALUES(6,3,1,'000__test/001__x=b','cell','xfailed','check','expected to fail until 2099-12-31 (ada): TPG-1
junit: 1 of 1 test did not pass (1 failed)
m.t: 1 != 2',1,0.115,'fe28741ab90b','local','ci-1','',NULL,0,'','');
INSERT INTO "results" VALUES(7,4,2,'000__test/000__x=a','cell','passed',NULL,'',1,0.744,'6e33da7ceb47','local','ci-1','',NULL,0,'','');
INSERT INTO "results" VALUES(8,4,1,'000__test/001__x=b','cell','xfailed','check','expected to fail until 2099-12-31 (ada): TPG-1
junit: 1 of 1 test did not pass (1 failed)
m.t: 1 != 2',1,0.206,'fe28741ab90b','local','ci-1','',NULL,0,'','');
INSERT INTO "results" VALUES(9,5,2,'000__test/000__x=a','cell','passed',NULL,'',1,0.719,'6e33da7ceb47','local','ci-1','',NULL,0,'','');
INSERT INTO "results" VALUES(10,5,1,'000__test/001__x=b','cell','xfailed','check','expected to fail until 2099-12-31 (ada): TPG-1
junit: 1 of 1 test did not pass (1 failed)
m.t: 1 != 2',1,0.105,'fe28741ab90b','local','ci-1','',NULL,0,'','');
CREATE TABLE runs (
	id INTEGER NOT NULL, 
	project VARCHAR NOT NULL, 
	run VARCHAR NOT NULL, 
	started DATETIME NOT NULL, 
	state VARCHAR NOT NULL, 
	verdict VARCHAR, 
	cause VARCHAR, 
	message VARCHAR NOT NULL, 
	exit_code INTEGER, 
	seconds DOUBLE, 
	presets JSON NOT NULL, 
	revision VARCHAR, 
	host VARCHAR, 
	user VARCHAR, 
	versions JSON NOT NULL, 
	directory VARCHAR NOT NULL, 
	currency VARCHAR NOT NULL, 
	updated DATETIME NOT NULL, 
	recorded DATETIME NOT NULL, 
	baseline BOOLEAN NOT NULL, 
	CONSTRAINT pk_runs PRIMARY KEY (id), 
	CONSTRAINT uq_runs_project UNIQUE (project, run, started)
);
INSERT INTO "runs" VALUES(1,'grid','20261128-231105-j4or','2026-11-28 23:11:06.115226','finished','xfailed','check','expected to fail until 2099-12-31 (ada): TPG-1
junit: 1 of 1 test did not pass (1 failed)
m.t: 1 != 2',0,1.028,'[]',NULL,'ci-1','ci','{"python": "3.11.7", "topgallant": "0.2.0", "ansible-core": "2.19.14", "ansible-runner": "2.4.3"}','/tmp/work/nightly/grid/20261128-231105-j4or','USD','2026-11-28 23:11:07.143322','2026-11-28 23:13:03.939135',1);
INSERT INTO "runs" VALUES(2,'grid','20261128-231131-dqaj','2026-11-28 23:11:31.741646','finished','xfailed','check','expected to fail until 2099-12-31 (ada): TPG-1
junit: 1 of 1 test did not pass (1 failed)
m.t: 1 != 2',0,0.746,'[]',NULL,'ci-1','ci','{"python": "3.11.7", "topgallant": "0.2.0", "ansible-core": "2.19.14", "ansible-runner": "2.4.3"}','/tmp/work/nightly/grid/20261128-231131-dqaj','USD','2026-11-28 23:11:32.488134','2026-11-28 23:13:04.213182',1);
INSERT INTO "runs" VALUES(3,'grid','20261128-231153-bewf','2026-11-28 23:11:53.796521','finished','xfailed','check','expected to fail until 2099-12-31 (ada): TPG-1
junit: 1 of 1 test did not pass (1 failed)
m.t: 1 != 2',0,1.178,'[]',NULL,'ci-1','ci','{"python": "3.11.7", "topgallant": "0.2.0", "ansible-core": "2.19.14", "ansible-runner": "2.4.3"}','/tmp/work/nightly/grid/20261128-231153-bewf','USD','2026-11-28 23:11:54.974506','2026-11-28 23:13:04.303854',1);
INSERT INTO "runs" VALUES(4,'grid','20261128-231219-1vkp','2026-11-28 23:12:19.229625','finished','xfailed','check','expected to fail until 2099-12-31 (ada): TPG-1
junit: 1 of 1 test did not pass (1 failed)
m.t: 1 != 2',0,1.376,'[]',NULL,'ci-1','ci','{"python": "3.11.7", "topgallant": "0.2.0", "ansible-core": "2.19.14", "ansible-runner": "2.4.3"}','/tmp/work/nightly/grid/20261128-231219-1vkp','USD','2026-11-28 23:12:20.605315','2026-11-28 23:13:04.476439',1);
INSERT INTO "runs" VALUES(5,'grid','20261128-231242-l3c4','2026-11-28 23:12:43.195051','finished','xfailed','check','expected to fail until 2099-12-31 (ada): TPG-1
junit: 1 of 1 test did not pass (1 failed)
m.t: 1 != 2',0,1.103,'[]',NULL,'ci-1','ci','{"python": "3.11.7", "topgallant": "0.2.0", "ansible-core": "2.19.14", "ansible-runner": "2.4.3"}','/tmp/work/nightly/grid/20261128-231242-l3c4','USD','2026-11-28 23:12:44.298190','2026-11-28 23:13:04.622035',1);
CREATE TABLE samples (
	series_id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	value DOUBLE, 
	fault VARCHAR NOT NULL, 
	accepted BOOLEAN NOT NULL, 
	noisy BOOLEAN NOT NULL, 
	confirmed BOOLEAN NOT NULL, 
	CONSTRAINT pk_samples PRIMARY KEY (series_id, run_id), 
	CONSTRAINT fk_samples_series_id_series FOREIGN KEY(series_id) REFERENCES series (id) ON DELETE CASCADE, 
	CONSTRAINT fk_samples_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "samples" VALUES(1,1,1.5,'',0,0,0);
INSERT INTO "samples" VALUES(1,2,1.5,'',0,0,0);
INSERT INTO "samples" VALUES(1,3,1.5,'',0,0,0);
INSERT INTO "samples" VALUES(1,4,1.5,'',0,0,0);
INSERT INTO "samples" VALUES(1,5,1.5,'',0,0,0);
INSERT INTO "samples" VALUES(2,1,1.5,'',1,0,0);
INSERT INTO "samples" VALUES(2,2,1.5,'',1,0,0);
INSERT INTO "samples" VALUES(2,3,1.5,'',1,0,0);
INSERT INTO "samples" VALUES(2,4,1.5,'',1,0,0);
INSERT INTO "samples" VALUES(2,5,1.5,'',1,0,0);
CREATE TABLE series (
	id INTEGER NOT NULL, 
	cell_id INTEGER NOT NULL, 
	metric VARCHAR NOT NULL, 
	unit VARCHAR NOT NULL, 
	direction VARCHAR, 
	CONSTRAINT pk_series PRIMARY KEY (id), 
	CONSTRAINT fk_series_cell_id_cells FOREIGN KEY(cell_id) REFERENCES cells (id), 
	CONSTRAINT uq_series_cell_id UNIQUE (cell_id, metric, unit)
);
INSERT INTO "series" VALUES(1,1,'time','s','lower');
INSERT INTO "series" VALUES(2,2,'time','s','lower');
CREATE INDEX ix_runs_started ON runs (started);
CREATE INDEX ix_merged_shards_run_id ON merged_shards (run_id);
CREATE INDEX ix_merged_shards_run ON merged_shards (run);
CREATE INDEX ix_results_cell_id ON results (cell_id);
CREATE INDEX ix_results_reuse_key ON results (reuse_key);
CREATE INDEX ix_samples_run_id ON samples (run_id);
CREATE INDEX ix_case_results_case_id ON case_results (case_id);
COMMIT;
