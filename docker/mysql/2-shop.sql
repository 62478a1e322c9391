-- The tables of examples/shop.py, for a schema of their own: 200 products, and 50,000 reviews, so that
-- the list of a category costs MySQL something.

CREATE TABLE category (
  id INT UNSIGNED PRIMARY KEY,
  name VARCHAR(40) NOT NULL
);

CREATE TABLE product (
  id INT UNSIGNED PRIMARY KEY AUTO_INCREMENT,
  category_id INT UNSIGNED NOT NULL,
  name VARCHAR(80) NOT NULL,
  price DECIMAL(8, 2) NOT NULL,
  FOREIGN KEY (category_id) REFERENCES category (id)
);

CREATE TABLE review (
  id INT UNSIGNED PRIMARY KEY AUTO_INCREMENT,
  product_id INT UNSIGNED NOT NULL,
  stars TINYINT UNSIGNED NOT NULL,
  FOREIGN KEY (product_id) REFERENCES product (id)
);

INSERT INTO category
VALUES (1, 'Bicycles'), (2, 'Chairs'), (3, 'Clocks'), (4, 'Kettles'), (5, 'Lamps');

INSERT INTO product (category_id, name, price)
WITH
  maker (m, maker) AS (
    SELECT 1, 'Alder' UNION ALL SELECT 2, 'Berg & Sons' UNION ALL SELECT 3, 'Corvina'
    UNION ALL SELECT 4, 'Dunmore' UNION ALL SELECT 5, 'O''Hara'
  ),
  model (n, model) AS (
    SELECT 1, 'Classic' UNION ALL SELECT 2, 'Copper' UNION ALL SELECT 3, 'Junior'
    UNION ALL SELECT 4, 'Light' UNION ALL SELECT 5, 'Oak' UNION ALL SELECT 6, 'Studio'
    UNION ALL SELECT 7, 'Traveller' UNION ALL SELECT 8, 'Winter'
  )
SELECT category.id, CONCAT(maker, ' ', model), 17.5 + (category.id * 97 + m * 31 + n * 13) % 140
FROM category, maker, model
ORDER BY category.id, m, n;

INSERT INTO review (product_id, stars)
WITH RECURSIVE
  customer (c) AS (SELECT 1 UNION ALL SELECT c + 1 FROM customer WHERE c < 250)
SELECT product.id, 5 - (product.id * 7 + c * c) % 11 DIV 3
FROM product, customer;
