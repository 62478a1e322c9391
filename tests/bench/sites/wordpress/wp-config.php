<?php
// Where its database is says the environment; all else is as a small site has it.

foreach (array('DB_NAME', 'DB_USER', 'DB_PASSWORD', 'DB_HOST') as $name) {
    define($name, getenv("PAGES_$name"));
}
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
$table_prefix = 'wp_';

define('WP_HOME', 'http://pages.test');
define('WP_SITEURL', 'http://pages.test');

// What it would do beside a page, at a time of its own.
define('DISABLE_WP_CRON', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
define('WP_AUTO_UPDATE_CORE', false);
define('WP_HTTP_BLOCK_EXTERNAL', true);

// One site whose sign-ins are worth nothing.
$keys = array('AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE');
foreach ($keys as $name) {
    define("{$name}_KEY", "the key of $name");
    define("{$name}_SALT", "the salt of $name");
}

if (!defined('ABSPATH')) {
    define('ABSPATH', __DIR__ . '/');
}
require_once ABSPATH . 'wp-settings.php';
